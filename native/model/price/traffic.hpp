// Traffic: what a whole schedule moves, exactly, without walking it.
//
// A tiling's tiles are a product of axes, so the boxes that an operand's ring fetches are counted
// axis by axis: an axis that moves the operand multiplies, one that does not multiplies only where
// the boxes inside it do not all fit the ring. That is what least-recently-used slots do with a
// lexicographic order; the tests hold it to walks of Schedule.
#pragma once

#include "geom/schedule.hpp"
#include "model/price/cuts.hpp"
#include "model/price/rows.hpp"

namespace oocdnn {

struct OperandTraffic {
  int64_t transfers = 0;  // fetches, or drains of the output
  int64_t elements = 0;   // that cross the wire
  RowCount rows{0, 0};    // contiguous pieces of the caller's memory that they lie in
  int64_t moved = 0;      // rolled over inside the device
  bool varies = false;    // whether it may be another with fewer slots
};

OperandTraffic TrafficOf(const Problem& problem, const Cuts& cuts, const LoopOrder& order,
                         const MemoryOrder::Steps& steps, Operand operand, int depth);

// Distinct boxes of the operand in the whole schedule. counts[i]: pieces of axis i.
int64_t BoxesOf(const Problem& problem, const AxisArray& counts, Operand operand);

}  // namespace oocdnn
