// Pieces: at which tile lengths far rows of memory are made of whole pieces (see RowCount).
//
// Balanced tile lengths rarely are among them: 1024 rows of 4 KB in 86 tiles have 12 each, 48 KB.
#pragma once

#include <vector>

#include "model/plan.hpp"
#include "model/price/rows.hpp"

namespace oocdnn {

// The tile lengths on `axis` at whose multiples, all else being whole, rows of an operand of the
// convolution are made of whole pieces; at most one for each operand, and none where it crosses no
// wire, rows do not end along the axis, do not lie far apart, or have whole pieces at any length.
std::vector<int64_t> PieceLengths(const PlanRequest& request, const MemoryOrder& memory, Axis axis);

}  // namespace oocdnn
