// Checks on the operands of a call that need more than the problem's numbers, and the calls that
// have nothing to convolve.
#pragma once

#include "exec/staging.hpp"
#include "geom/overlap.hpp"
#include "geom/program.hpp"
#include "memory/arena.hpp"

namespace oocdnn {

// Operands that a node neither fetches from the caller nor leaves to the caller, see
// Program::PassedTo.
using Inner = std::array<bool, kOperands>;

// Missing pointers, an output that overlaps an input, a file that is too short for its tensor.
Status CheckOperands(const Problem& problem, const OperandViews& tensors, const Inner& inner = {});
// The same of all nodes of a program.
Status CheckOperands(const Program& program, const std::vector<OperandViews>& tensors);

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

// Finds out where each operand in memory lives; what another call has pinned for itself counts as
// pageable, and what has no data as pinned.
Status LocateOperands(Device& device, const Problem& problem, OperandViews* tensors,
                      const Inner& inner = {});
// The operands of all nodes with their tiers; what nodes pass to each other counts as on the
// device.
Result<std::vector<OperandViews>> LocateOperands(Device& device, const Program& program,
                                                 const std::vector<OperandViews>& operands);

// An empty batch: outputs without elements are left alone, dw and db become beta * old. On return
// it is done; the caller's stream must have come to this call.
Status RunEmpty(Device& device, const Problem& problem, const OperandViews& tensors, Arena& arena);

}  // namespace oocdnn
