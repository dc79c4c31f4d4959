// The operation table: for each direction, what part every operand plays in the tile loop. Adding
// an operation is a row here, a direction of Problem, and an engine case per device.
#pragma once

#include <array>

#include "geom/problem.hpp"

namespace oocdnn {

enum class Role : int {
  kUnused,
  kRead,    // an input of the convolution: needed at every step
  kFinish,  // an input of the finishing pass: needed when the sum's tile is complete
  kSum,     // what the engine computes
  kPooled,  // written by the finishing pass
  kSource,  // what a tile that the engine reads is restored from
};

struct Operation {
  Direction direction;
  std::array<Role, kOperands> role;  // by Operand

  [[nodiscard]] Role of(Operand operand) const { return role[static_cast<size_t>(operand)]; }
};

const Operation& OperationOf(Direction direction);

}  // namespace oocdnn
