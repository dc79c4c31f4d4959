#include "geom/roles.hpp"

namespace oocdnn {

Roles::Roles(const Problem& problem)
    : sum_(problem.sum()),
      output_(problem.output()),
      source_(problem.source()),
      restores_(problem.restores()) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Uses(operand)) continue;
    role_[i] = {true, problem.Has(operand), problem.Stays(operand), problem.Writes(operand)};
    used_.Put(operand);
    if (problem.Reads(operand)) read_.Put(operand);
    if (role_[i].writes) written_.Put(operand);
  }
}

}  // namespace oocdnn
