#include "geom/parts.hpp"

namespace oocdnn {

Operand Part::Of(Operand place) const {
  if (sum == Operand::kDw && place == Operand::kX) return Operand::kInput;
  if (sum == Operand::kDw && place == Operand::kW) return sum;
  return sum == Operand::kDb && place == Operand::kBias ? sum : place;
}

std::vector<Part> PartsOf(const Problem& problem) {
  std::vector<Part> parts{{problem.direction, problem.sum()}};
  if (problem.also.dw) parts.push_back({Direction::kBackwardFilter, Operand::kDw});
  if (problem.also.db) parts.push_back({Direction::kBackwardBias, Operand::kDb});
  return parts;
}

}  // namespace oocdnn
