#include "exec/walk.hpp"

namespace oocdnn {

Work::Work(const ProgramBooking& booking)
    : tiles(booking.tiles ? &*booking.tiles : nullptr), ring(booking.ring) {
  for (const Booking& node : booking.nodes) nodes.push_back(&node);
}

Walk::Walk(const Work& work) : work_(work) {
  if (work.tiles != nullptr) return;
  for (const Booking* node : work.nodes) {
    const Candidate& plan = node->candidate;
    schedules_.push_back(
        std::make_unique<Schedule>(node->problem, plan.tiling, plan.order, plan.depths));
  }
}

bool Walk::Next(std::vector<Step>* steps) {
  steps->resize(work_.nodes.size());
  if (work_.tiles == nullptr) {
    for (size_t i = 0; i < schedules_.size(); ++i) {
      const Step* const step = schedules_[i]->Next();
      if (step == nullptr) return false;
      (*steps)[i] = *step;
    }
    return true;
  }
  if (next_ == work_.tiles->Steps()) return false;
  for (size_t i = 0; i < steps->size(); ++i) {
    (*steps)[i] = work_.tiles->StepOf(i, next_, work_.ring);
  }
  ++next_;
  return true;
}

}  // namespace oocdnn
