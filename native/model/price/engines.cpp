#include "model/price/engines.hpp"

#include <algorithm>
#include <limits>

namespace oocdnn {

// What is computed holds nothing up but by when it ends, which is known as soon as it can begin. So
// only copies are followed from moment to moment.
void Engines::Run() {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  for (double now = 0.0;;) {
    Advance();
    const double speed = Speed();
    // The next moment at which a copy begins, begins to cross or ends, and which.
    Lane* next = nullptr;
    double moment = kNever;
    for (Lane* const lane : {&fetch_, &drain_}) {
      const double at =
          lane->phase == Phase::kIdle ? std::max(NextOf(*lane), now) : now + lane->left / speed;
      if (at < moment) {
        moment = at;
        next = lane;
      }
    }
    if (next == nullptr) return;
    const double passed = (moment - now) * speed;
    fetch_.left -= passed;
    drain_.left -= passed;
    now = moment;
    Turn(next, now);
  }
}

void Engines::Advance() {
  for (; computed_ < computations_.size(); ++computed_) {
    Computation& next = computations_[computed_];
    next.begin = computed_ > 0 ? computations_[computed_ - 1].end : 0.0;
    if (next.fetch != kNothing) {
      if (static_cast<size_t>(next.fetch) >= fetch_.done) return;
      next.begin = std::max(next.begin, fetch_.copies[static_cast<size_t>(next.fetch)].end + hop_);
    }
    if (next.drain != kNothing) {
      if (static_cast<size_t>(next.drain) >= drain_.done) return;
      next.begin = std::max(next.begin, drain_.copies[static_cast<size_t>(next.drain)].end + hop_);
    }
    next.end = next.begin + next.seconds;
  }
}

double Engines::NextOf(const Lane& lane) const {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  if (lane.done == lane.copies.size()) return kUnknown;
  const Copy& next = lane.copies[lane.done];
  if (next.computation == kNothing) return lane.free;
  const auto awaited = static_cast<size_t>(next.computation);
  return awaited < computed_ ? std::max(lane.free, computations_[awaited].end + hop_) : kUnknown;
}

double Engines::Speed() const {
  const bool together = fetch_.phase == Phase::kCrossing && drain_.phase == Phase::kCrossing;
  return together ? together_ : 1.0;
}

void Engines::Turn(Lane* lane, double now) {
  Copy& copy = lane->copies[lane->done];
  switch (lane->phase) {
    case Phase::kIdle:
      copy.begin = now;
      lane->phase = Phase::kBefore;
      lane->left = copy.before;
      return;
    case Phase::kBefore:
      lane->phase = Phase::kCrossing;
      lane->left = copy.crossing;
      return;
    case Phase::kCrossing:
      copy.end = lane->free = now;
      lane->phase = Phase::kIdle;
      ++lane->done;
  }
}

double Engines::EndOf(int64_t steps) const {
  double end = 0.0;
  const auto last_of = [&](const auto& pieces) {
    const auto next = std::partition_point(pieces.begin(), pieces.end(),
                                           [&](const auto& piece) { return piece.step < steps; });
    if (next != pieces.begin()) end = std::max(end, (next - 1)->end);
  };
  last_of(fetch_.copies);
  last_of(computations_);
  last_of(drain_.copies);
  return end;
}

}  // namespace oocdnn
