#include "library/timed_plans.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "library/time_run.hpp"
#include "library/trials.hpp"
#include "model/opinion.hpp"

namespace oocdnn {
namespace {

constexpr int kMostTimed = 16;
// What trying a plan takes, in runs of its tile: up to three of each of a few engines, and more of
// the one that is chosen.
constexpr double kRunsOfOne = 12;

// Seconds that all plans that are tried may take of the device. A first call is to take no more
// than three in all, with what was measured before it; where it takes longer anyhow, a better plan
// is worth as long again.
double MostSeconds(double call_seconds) {
  constexpr double kLong = 3.0, kLeast = 0.1, kMost = 0.5, kMeasured = 1.0;
  if (call_seconds >= kLong) return call_seconds;
  return std::clamp(kLong - kMeasured - call_seconds, kLeast, kMost);
}

// Times the plan, and others in its place for as long as one promises to be faster.
std::shared_ptr<const Profile> Check(Device& device, const PlanRequest& request,
                                     const Profile& profile, PlanReport* best, int64_t* prepared) {
  Opinion opinion(request, profile);
  PlanReport next = *best;
  double spent = 0.0;
  for (int timed = 0;; ++timed) {
    const double seconds = TimeRun(device, next.booking, request.budget);
    if (seconds == 0.0) break;
    next.run_seconds = seconds;
    next.cost = opinion.Learn(next.booking.candidate, seconds);
    if (timed == 0 || next.cost.seconds < best->cost.seconds) *best = std::move(next);
    spent += kRunsOfOne * seconds;
    if (timed + 1 == kMostTimed || spent >= MostSeconds(best->cost.seconds)) break;
    const auto promise = opinion.Promising(best->cost.seconds);
    if (!promise) break;
    Result<PlanReport> other =
        PlanAndBook(device, request, promise->profile, prepared, &promise->search);
    if (!other.ok() || other->cost.seconds * Opinion::kFaster >= best->cost.seconds) break;
    next = std::move(other).value();
  }
  return opinion.likely();
}

}  // namespace

Result<PlanReport> PlanAndTime(Device& device, const PlanRequest& request, const Profile& profile,
                               int64_t* prepared) {
  OOC_ASSIGN(PlanReport best, PlanAndBook(device, request, profile, prepared));
  const bool checks = profile.Measured() && device.capabilities().tries_engines;
  if (!request.measure && !checks) return best;
  best.refined = request.measure ? TryPlans(device, request, profile, &best, prepared)
                                 : Check(device, request, profile, &best, prepared);
  for (RankedCandidate& ranked : best.ranked) {
    ranked.cost = PriceOf(request, ranked.candidate, *best.refined);
  }
  return best;
}

}  // namespace oocdnn
