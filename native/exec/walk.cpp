#include "exec/walk.hpp"

namespace oocdnn {

Walk::Walk(const Work& work) : work_(work) {
  if (work.tiles != nullptr) return;
  const Candidate& plan = work.links.front()->candidate;
  schedule_.emplace(work.links.front()->problem, plan.tiling, plan.order, plan.depths);
}

bool Walk::Next(std::vector<Step>* steps) {
  if (schedule_) {
    const Step* const step = schedule_->Next();
    if (step == nullptr) return false;
    steps->assign(1, *step);
    return true;
  }
  if (next_ == work_.tiles->Steps()) return false;
  steps->resize(work_.links.size());
  for (size_t i = 0; i < steps->size(); ++i) {
    (*steps)[i] = work_.tiles->StepOf(i, next_, work_.ring);
  }
  ++next_;
  return true;
}

}  // namespace oocdnn
