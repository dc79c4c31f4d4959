// Parts: what engines compute of each tile, one after the other. A problem is one part, and each
// gradient that comes along with dx another (see Also).
#pragma once

#include <vector>

#include "geom/problem.hpp"

namespace oocdnn {

// One engine's work on a tile. It calls its operands by their places, as ever: the x of the part
// that sums dw is the problem's kInput.
struct Part {
  Direction direction = Direction::kForward;
  Operand sum = Operand::kY;  // what it computes, as the problem calls it

  // What the problem calls an operand of the engine's.
  [[nodiscard]] Operand Of(Operand place) const;
};

// The problem's own direction first.
std::vector<Part> PartsOf(const Problem& problem);

}  // namespace oocdnn
