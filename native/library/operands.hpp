// Checks on the operands of a call that need more than the problem's numbers.
#pragma once

#include <vector>

#include "device/device.hpp"
#include "geom/program.hpp"

namespace oocdnn {

// Missing pointers, an output that overlaps an input, a file that is too short for its tensor. Of
// operands that are not inner, see Program::PassedTo.
Status CheckOperands(const Problem& problem, const OperandViews& tensors, const Inner& inner = {});
// The same of all nodes of a program.
Status CheckOperands(const Program& program, const std::vector<OperandViews>& tensors);

}  // namespace oocdnn
