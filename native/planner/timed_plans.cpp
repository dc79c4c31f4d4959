#include "planner/timed_plans.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/watch.hpp"
#include "model/search/axis_choices.hpp"
#include "model/search/rate_estimate.hpp"
#include "planner/time_run.hpp"
#include "planner/trials.hpp"

namespace oocdnn {
namespace {

constexpr int kMostTimed = 16, kLeastTimed = 3;
// What trying a plan takes, in runs of its tile: up to three of each of a few engines, and more of
// the one that is chosen. What is too long to be run takes so many seconds, on smaller tiles.
constexpr double kRunsOfOne = 12, kSecondsUnrun = 0.5;
// Preparing another tile takes several calls' time, so what is known is taken where no plan is
// faster by this.
constexpr double kFarFaster = 1.25;
// How much faster than predicted another kind of tile may be (1.3 was seen).
constexpr double kKindFaster = 1.3;

// Seconds that all plans that are tried may take of the device. A first call is to take no more
// than three in all, with what was measured before it; where it takes longer anyhow, a better plan
// is worth as long again, up to three seconds.
double MostSeconds(double call_seconds) {
  constexpr double kLong = 3.0, kLeast = 0.1, kMost = 0.5, kMeasured = 1.0;
  if (call_seconds >= kLong) return kLong;
  return std::clamp(kLong - kMeasured - call_seconds, kLeast, kMost);
}

// The others are priced again with what was learnt, which is kept.
void Conclude(const PlanRequest& request, const Profile& before, const Profile& learnt,
              PlanReport* report) {
  for (RankedCandidate& ranked : report->ranked) {
    ranked.cost = PriceOf(request, ranked.candidate, learnt);
  }
  report->rate_updates = RateUpdates(before, learnt);
}

// Finds the plan of a request among those whose tiles are timed, or were before.
class TimedSearch {
 public:
  TimedSearch(Device& device, const PlanRequest& request, const Profile& profile, TimedTiles* timed,
              int64_t* prepared)
      : device_(device),
        request_(request),
        profile_(profile),
        timed_(*timed),
        prepared_(*prepared),
        estimate_(request, profile) {
    for (const TimedTile& one : timed_.tiles) {
      estimate_.Recall(one.candidate, one.run_seconds);
      spent_ += one.spent_seconds;
    }
  }

  // What was timed for other requests says little of tiles of another size, so the plan that the
  // profile alone speaks for gets its try too.
  Result<PlanReport> Run() {
    const bool recalls = !timed_.tiles.empty();
    left_ = std::max(kMostTimed - static_cast<int>(timed_.tiles.size()), kLeastTimed);
    OOC_ASSIGN(best_, First());
    Try(best_);
    if (recalls) TryFresh();
    const bool all = TryKinds();
    if (!MayLook()) TryKnown();
    Conclude(request_, profile_, estimate_.likely(), &best_);
    best_.settled = all && MayLook();
    timed_.planning_seconds += watch_.Seconds();
    return std::move(best_);
  }

 private:
  [[nodiscard]] bool Knows(const Candidate& candidate) const {
    return Find(timed_, candidate) != nullptr;
  }
  [[nodiscard]] bool MayLook(double seconds) const {
    return !request_.gradual || oocdnn::MayLook(timed_, watch_.Seconds(), seconds);
  }
  [[nodiscard]] bool MayLook() const { return MayLook(best_.cost.seconds); }
  [[nodiscard]] bool MayTime() const {
    return spent_ < MostSeconds(best_.cost.seconds) && MayLook();
  }

  Result<PlanReport> First() {
    Result<PlanSearch> search = Search(WithoutBounce(request_), estimate_.likely());
    if (!search.ok()) return PlanAndBook(device_, request_, estimate_.likely(), &prepared_);
    std::vector<RankedCandidate>& ranked = search->ranked;
    const double promised = ranked.front().cost.seconds;
    if (!MayLook(promised)) {
      const auto known = BestKnown(kFarFaster * promised);
      if (known) ranked.insert(ranked.begin(), *known);
    }
    return PlanAndBook(device_, request_, estimate_.likely(), &prepared_, &search.value());
  }

  // Of the tiles that were timed the one of the fastest plan, which takes less than `seconds`.
  [[nodiscard]] std::optional<RankedCandidate> BestKnown(double seconds) const {
    const PlanRequest request = WithoutBounce(request_);
    std::optional<RankedCandidate> best;
    for (const TimedTile& one : timed_.tiles) {
      if (EstimateBytes(request, one.candidate) > request.budget) continue;
      const Cost cost = PriceOf(request, one.candidate, estimate_.likely(), one.run_seconds);
      if (cost.seconds >= (best ? best->cost.seconds : seconds)) continue;
      best = {one.candidate, cost};
    }
    return best;
  }

  // Where the plan has disappointed and nothing else may be looked at.
  void TryKnown() {
    const auto known = BestKnown(best_.cost.seconds / RateEstimate::kFaster);
    if (!known) return;
    PlanSearch search;
    search.ranked.push_back(*known);
    Result<PlanReport> other =
        PlanAndBook(device_, request_, estimate_.likely(), &prepared_, &search);
    if (other.ok()) Try(std::move(other).value());
  }

  // 0 where it cannot be timed.
  double RunSeconds(const Booking& booking) {
    if (const TimedTile* const known = Find(timed_, booking.candidate)) return known->run_seconds;
    const double seconds = TimeRun(device_, booking, request_.budget);
    if (seconds == 0.0) return 0.0;
    const double unrun = UnrunSeconds(booking);
    const double spent = kRunsOfOne * (seconds - unrun) + (unrun > 0.0 ? kSecondsUnrun : 0.0);
    timed_.tiles.push_back({booking.candidate, seconds, spent});
    spent_ += spent;
    return seconds;
  }

  // Times the plan, and others in its place for as long as one promises to be faster.
  void Try(PlanReport next) {
    for (;;) {
      const double seconds = RunSeconds(next.booking);
      if (seconds == 0.0) return;
      next.run_seconds = seconds;
      next.cost = estimate_.Learn(next.booking.candidate, seconds);
      const bool first = best_.run_seconds == 0.0;
      if (first || next.cost.seconds < best_.cost.seconds) best_ = std::move(next);
      if (--left_ <= 0 || !MayLook()) return;
      const auto promise = estimate_.Promising(best_.cost.seconds);
      if (!promise || !(MayTime() || Knows(promise->search.ranked.front().candidate))) return;
      Result<PlanReport> other =
          PlanAndBook(device_, request_, promise->profile, &prepared_, &promise->search);
      if (!other.ok() || other->cost.seconds * RateEstimate::kFaster >= best_.cost.seconds) return;
      next = std::move(other).value();
    }
  }

  void TryFresh() {
    if (!MayTime()) return;
    const Result<PlanSearch> search = Search(WithoutBounce(request_), profile_);
    if (!search.ok() || Knows(search->ranked.front().candidate)) return;
    Result<PlanReport> fresh =
        PlanAndBook(device_, request_, profile_, &prepared_, &search.value());
    if (fresh.ok()) Try(std::move(fresh).value());
  }

  // Where calls have taken so long that it is worth it, the best of each other kind of tile: no
  // rate promises anything of them. False where there is one that may be tried later.
  bool TryKinds() {
    if (!request_.gradual || best_.run_seconds == 0.0 || !ArithmeticBounds(best_.cost)) return true;
    const RankedCandidate chosen{best_.booking.candidate, best_.cost};
    for (const PlanSearch& kind :
         OtherAxisChoices(WithoutBounce(request_), estimate_.likely(), chosen, kKindFaster)) {
      if (Knows(kind.ranked.front().candidate)) continue;
      const double runs = watch_.Seconds() + kRunsOfOne * best_.run_seconds;
      if (!oocdnn::MayLook(timed_, runs, best_.cost.seconds)) return false;
      Result<PlanReport> other =
          PlanAndBook(device_, request_, estimate_.likely(), &prepared_, &kind);
      left_ = std::max(left_, 1);
      if (other.ok()) Try(std::move(other).value());
    }
    return true;
  }

  Device& device_;
  const PlanRequest& request_;
  const Profile& profile_;
  TimedTiles& timed_;
  int64_t& prepared_;
  RateEstimate estimate_;
  PlanReport best_;
  double spent_ = 0.0;  // on the device, for this problem
  int left_ = 0;        // plans that may still be tried
  const Watch watch_;
};

}  // namespace

Result<PlanReport> PlanAndTime(Device& device, const PlanRequest& request, const Profile& profile,
                               TimedTiles* timed, int64_t* prepared) {
  const bool checks = profile.Measured() && device.capabilities().tries_engines;
  if (checks && !request.measure) {
    return TimedSearch(device, request, profile, timed, prepared).Run();
  }
  OOC_ASSIGN(PlanReport best, PlanAndBook(device, request, profile, prepared));
  if (request.measure) {
    Conclude(request, profile, TryPlans(device, request, profile, &best, prepared), &best);
  }
  return best;
}

}  // namespace oocdnn
