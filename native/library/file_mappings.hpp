// Overlap through files: two mappings of one file, or a mapping and the file itself, are the same
// bytes at addresses that do not tell.
#pragma once

#include "library/locate.hpp"

namespace oocdnn {

// Refuses results whose bytes are those of another operand by way of a file, for operands whose
// tiers are known. Costs a look at /proc/self/pagemap for each result in pageable memory, and a
// pass over /proc/self/maps where one may be mapped from a file. Pinned memory is not looked at.
Status CheckFileMappings(const Problem& problem, const OperandViews& tensors,
                         const Inner& inner = {});
Status CheckFileMappings(const Program& program, const std::vector<OperandViews>& tensors);

}  // namespace oocdnn
