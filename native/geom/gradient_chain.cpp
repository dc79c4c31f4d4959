// Which problems a chain's gradients take, and which of their operands are one tensor.
#include "geom/gradient_chain.hpp"

#include <utility>

namespace oocdnn {
namespace {

Status CheckLink(const Problem& problem) {
  const char* what = nullptr;
  if (problem.direction != Direction::kForward) what = Name(problem.direction);
  if (problem.alpha != 1.0) what = "alpha";
  if (problem.beta != 0.0) what = "beta";
  if (problem.epilogue.scale) what = "a scale";
  if (problem.epilogue.residual) what = "a residual";
  if (problem.prologue.any()) what = "a prologue";
  if (problem.sums) what = "sums";
  if (what == nullptr) return Validate(problem);
  return Error(Code::kUnsupported, "%s in a chain's gradients: compute them link by link", what);
}

bool ReadsX(const std::optional<Problem>& gradients) {
  return gradients && (gradients->also.dw || gradients->direction == Direction::kBackwardFilter);
}

// Whether the gradients read what the sequence has to save for them.
bool ReadsSaved(const TrainedLink& link) {
  return link.gradients && link.gradients->Uses(Operand::kSaved) && !link.has_saved;
}

// Of what a link reads, in its gradients.
Operand InputOf(const Problem& gradients) {
  return gradients.also.dw ? Operand::kInput : Operand::kX;
}

class Builder {
 public:
  explicit Builder(const std::vector<TrainedLink>& links)
      : links_(links), forward_(links.size()), gradients_(links.size()) {}

  GradientProgram Build() {
    PutProblems();
    for (size_t i = 0; i < links_.size(); ++i) {
      ShareX(i);
      ShareRest(i);
    }
    if (forward_.back()) Share({ResultOf(*forward_.back())}, true);  // for nobody
    return std::move(made_);
  }

 private:
  using Number = std::optional<size_t>;  // of a node

  // By link, whether anything needs what it computes.
  [[nodiscard]] std::vector<bool> NeededForward() const {
    std::vector<bool> needed(links_.size());
    bool result = false;  // what the link gives is read
    for (size_t i = links_.size(); i-- > 0;) {
      needed[i] = result || ReadsSaved(links_[i]);
      result = needed[i] || ReadsX(links_[i].gradients);
    }
    return needed;
  }

  size_t Put(const Problem& problem, size_t link, bool gradients) {
    made_.gradients.push_back(gradients);
    return made_.program.Append(problem, link);
  }

  void PutProblems() {
    const std::vector<bool> needed = NeededForward();
    for (size_t i = 0; i < links_.size(); ++i) {
      if (!needed[i]) continue;
      Problem problem = links_[i].forward;
      if (!ReadsSaved(links_[i])) {
        problem.saves = false;
        SetPooled(&problem);
      }
      forward_[i] = Put(problem, i, false);
    }
    for (size_t i = links_.size(); i-- > 0;) {
      if (links_[i].gradients) gradients_[i] = Put(*links_[i].gradients, i, true);
    }
  }

  [[nodiscard]] TensorUse ResultOf(size_t node) const {
    return {node, made_.program[node].output()};
  }

  // `made`: the first of them writes it.
  void Share(const std::vector<TensorUse>& uses, bool made) {
    if (uses.empty() || (uses.size() == 1 && !made)) return;
    made_.program.Share(uses, !made);
  }

  void ShareX(size_t link) {
    std::vector<TensorUse> x;
    const bool made = link > 0 && forward_[link - 1];
    if (made) x.push_back(ResultOf(*forward_[link - 1]));
    if (forward_[link]) x.push_back({*forward_[link], Operand::kX});
    if (ReadsX(links_[link].gradients)) {
      x.push_back({*gradients_[link], InputOf(*links_[link].gradients)});
    }
    Share(x, made);
  }

  void ShareRest(size_t link) {
    const auto& gradients = links_[link].gradients;
    if (!gradients) return;
    const size_t mine = *gradients_[link];
    if (ReadsSaved(links_[link])) {
      Share({{*forward_[link], Operand::kSaved}, {mine, Operand::kSaved}}, true);
    }
    if (gradients->direction == Direction::kBackwardData && forward_[link]) {
      Share({{*forward_[link], Operand::kW}, {mine, Operand::kW}}, false);
    }
    if (link + 1 < links_.size()) {
      Share({{*gradients_[link + 1], Operand::kX}, {mine, GradientRead(*gradients)}}, true);
    }
  }

  const std::vector<TrainedLink>& links_;
  std::vector<Number> forward_, gradients_;  // by link
  GradientProgram made_;
};

}  // namespace

Result<GradientProgram> MakeGradientChain(const std::vector<TrainedLink>& links) {
  if (links.empty()) return Error(Code::kInvalidProblem, "a chain without links");
  if (!links.back().gradients) return Error(Code::kInvalidProblem, "no gradient is wanted");
  for (size_t i = 0; i < links.size(); ++i) {
    const std::string where = Format("link %zu of a chain", i);
    OOC_TRY(CheckLink(links[i].forward).With(where));
    if (links[i].gradients) OOC_TRY(Validate(*links[i].gradients).With(where));
  }
  return Builder(links).Build();
}

}  // namespace oocdnn
