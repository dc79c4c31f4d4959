// The addresses of a call's operands, and the tier of the memory at these addresses.
#pragma once

#include <vector>

#include "device/device.hpp"
#include "geom/overlap.hpp"
#include "geom/program.hpp"

namespace oocdnn {

// [begin, end) of a tensor in its memory or its file.
struct AddressRange {
  int64_t begin = 0, end = 0;

  bool operator==(const AddressRange&) const = default;
  [[nodiscard]] int64_t bytes() const { return end - begin; }
  [[nodiscard]] bool Touches(const AddressRange& other) const {
    return begin < other.end && other.begin < end;
  }
};
AddressRange AddressesOf(const Problem& problem, const OperandViews& tensors, Operand operand);
// The elements of a tensor, at addresses or at offsets in its file.
StridedBox BoxOf(const Problem& problem, const OperandViews& tensors, Operand operand);

// Finds out where each operand in memory lies; what another call has pinned for itself counts as
// pageable, and what has no data as pinned. kUnsupported if an operand lies on another GPU.
Status LocateOperands(Device& device, const Problem& problem, OperandViews* tensors,
                      const Inner& inner = {});
// The operands of all nodes with their tiers; what nodes pass to each other counts as on the
// device.
Result<std::vector<OperandViews>> LocateOperands(Device& device, const Program& program,
                                                 const std::vector<OperandViews>& operands);

}  // namespace oocdnn
