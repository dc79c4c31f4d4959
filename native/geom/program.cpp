// The nodes of a program and the tensors between them.
#include "geom/program.hpp"

#include <algorithm>
#include <utility>

namespace oocdnn {

const ProgramTensor* Program::TensorOf(size_t node, Operand operand) const {
  const int number = tensor_[node][static_cast<size_t>(Index(operand))];
  return number == kAlone ? nullptr : &tensors_[static_cast<size_t>(number)];
}

bool Program::IsInner(size_t node, Operand operand) const {
  const ProgramTensor* const tensor = TensorOf(node, operand);
  return tensor != nullptr && !tensor->outer;
}

Inner Program::PassedTo(size_t node) const {
  Inner passed{};
  for (size_t o = 0; o < kOperands; ++o) {
    const TensorUse use{node, static_cast<Operand>(o)};
    const ProgramTensor* const tensor = TensorOf(node, use.operand);
    if (tensor == nullptr) continue;
    const bool fetched = traversal_ == Traversal::kSamples && !(tensor->uses.front() == use);
    passed[o] = !tensor->outer || fetched;
  }
  return passed;
}

size_t Program::Append(const Problem& problem, size_t link) {
  nodes_.push_back(problem);
  link_.push_back(link);
  tensor_.emplace_back().fill(kAlone);
  return nodes_.size() - 1;
}

void Program::Share(std::vector<TensorUse> uses, bool outer) {
  for (const TensorUse& use : uses) {
    tensor_[use.node][static_cast<size_t>(Index(use.operand))] = static_cast<int>(tensors_.size());
  }
  tensors_.push_back({std::move(uses), outer});
}

std::string TextOf(const Program& program) {
  if (program.traversal() == Traversal::kSamples) {
    size_t last = 0;
    for (size_t i = 0; i < program.size(); ++i) last = std::max(last, program.LinkOf(i));
    return Format("the gradients of a chain of %zu links, to %s", last + 1,
                  ToString(program.back()).c_str());
  }
  if (program.size() == 1) return ToString(program.front());
  return Format("a chain of %zu links, from %s to %s", program.size(),
                ToString(program.front()).c_str(), ToString(program.back()).c_str());
}

}  // namespace oocdnn
