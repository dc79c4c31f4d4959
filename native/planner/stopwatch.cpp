#include "planner/stopwatch.hpp"

#include <algorithm>
#include <cmath>

namespace oocdnn {

Evidence Timing::evidence() const {
  const double spread = excess / seconds;
  return {samples, ok() && std::isfinite(spread) ? spread : -1.0};
}

Timing TimingOf(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  const double best = seconds.front(), middle = seconds[seconds.size() / 2];
  return {best, middle - best, static_cast<int64_t>(seconds.size())};
}

Timing MiddleOf(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  seconds.erase(seconds.begin(), seconds.begin() + static_cast<long>(seconds.size() / 2));
  return TimingOf(std::move(seconds));
}

Timing Better(const Timing& one, const Timing& other) {
  return other.seconds < one.seconds ? other : one;
}

Timing Share(const Timing& whole, double parts) {
  return {whole.seconds / parts, whole.excess / parts, whole.samples};
}

Timing Beyond(const Timing& whole, const Timing& part) {
  if (!whole.ok() || !part.ok()) return {};
  return {std::max(whole.seconds - part.seconds, 0.0), whole.excess + part.excess,
          std::min(whole.samples, part.samples)};
}

double RateOf(double amount, const Timing& timing) {
  if (!timing.ok() || timing.seconds <= 0.0) return 0.0;
  return PossibleRate(amount / timing.seconds);
}

}  // namespace oocdnn
