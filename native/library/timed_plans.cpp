#include "library/timed_plans.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "library/time_run.hpp"
#include "library/trials.hpp"
#include "model/refine.hpp"

namespace oocdnn {
namespace {

constexpr int kMostTimed = 16;
// What trying a plan takes, in runs of its tile: up to three of each of a few engines, and more of
// the one that is chosen.
constexpr double kRunsOfOne = 12;

// By how much a plan has to promise to be faster: what is likely, and what is only hoped for.
constexpr double kFaster = 1.01, kHopedFaster = 1.03;
// By how much tiles of the problem may be faster than the fastest of their number of channels that
// was measured: cuDNN's rates go up and down with the size by as much as that.
constexpr double kHope = 1.1;
constexpr double kNear = 0.03;  // sizes that differ by less, as a share, are alike

// Seconds that all plans that are tried may take of the device. A first call is to take no more
// than three in all, with what was measured before it; where it takes longer anyhow, a better plan
// is worth as long again.
double MostSeconds(double call_seconds) {
  constexpr double kLong = 3.0, kLeast = 0.1, kMost = 0.5, kMeasured = 1.0;
  if (call_seconds >= kLong) return call_seconds;
  return std::clamp(kLong - kMeasured - call_seconds, kLeast, kMost);
}

// What is thought of the device, and learns from the runs that are timed.
class Opinion {
 public:
  Opinion(const PlanRequest& request, const Profile& profile)
      : request_(request),
        profile_(profile),
        likely_(std::make_shared<Profile>(profile)),
        hoped_(std::make_shared<Profile>(profile)) {
    for (auto& [_, rates] : hoped_->tiles) {
      rates = AllAsFast(rates);
      for (auto& [size, rate] : rates) rate *= kHope;
    }
  }

  [[nodiscard]] const std::shared_ptr<Profile>& likely() const { return likely_; }

  // The price of a plan whose run took so long. That its tile is faster or slower than was thought
  // may lie with its size alone or with the problem. Of other tiles with its number of channels
  // half of it is thought likely, and the best of all that were timed may be hoped for.
  Cost Learn(const Candidate& candidate, double run_seconds) {
    const TileRate before = RateOfTile(request_, candidate, *likely_);
    Disappoint(candidate, run_seconds);
    const Cost cost = oocdnn::Learn(request_, candidate, run_seconds, likely_.get());
    const TileRate after = RateOfTile(request_, candidate, *likely_);
    timed_.insert({after.key, after.size});
    ScaleOthers(after, std::sqrt(after.rate / before.rate), likely_.get());
    const double surprise = after.rate / RateOfTile(request_, candidate, profile_).rate;
    const auto [best, first] = best_.try_emplace({after.key, after.size.channels}, surprise);
    const double known = first ? 1.0 : best->second;
    best->second = std::max(best->second, surprise);
    ScaleOthers(after, best->second / known, hoped_.get());
    return cost;
  }

  // Plans of which the first may be faster than one of so many seconds, and by what; none where
  // nothing says so.
  struct Promise {
    const Profile& profile;
    PlanSearch search;
  };
  [[nodiscard]] std::optional<Promise> Promising(double seconds) const {
    std::optional<Promise> promise = Promised(*likely_, seconds / kFaster);
    return promise ? std::move(promise) : Promised(*hoped_, seconds / kHopedFaster);
  }

 private:
  // Only of this size is less hoped for: the next may fill the device better.
  void Disappoint(const Candidate& candidate, double run_seconds) {
    const TileRate hope = RateOfTile(request_, candidate, *hoped_);
    for (const double near : {1 - kNear, 1 + kNear}) {
      const TileSize size = {hope.size.channels, std::llround(near * hope.size.outputs)};
      if (timed_.contains({hope.key, size})) continue;
      AddTile(size, hope.rate, hope.rate, &hoped_->tiles[hope.key]);
    }
    Refine(request_, candidate, run_seconds, {}, hoped_.get());
  }

  // Those with as many channels that were not timed.
  void ScaleOthers(const TileRate& timed, double factor, Profile* profile) const {
    for (auto& [size, rate] : profile->tiles[timed.key]) {
      const bool alike = size.channels == timed.size.channels;
      if (alike && !timed_.contains({timed.key, size})) rate *= factor;
    }
  }

  [[nodiscard]] std::optional<Promise> Promised(const Profile& profile, double seconds) const {
    Result<PlanSearch> search = Search(WithoutBounce(request_), profile);
    if (!search.ok() || search->ranked.front().cost.seconds >= seconds) return std::nullopt;
    return Promise{profile, std::move(search).value()};
  }

  const PlanRequest& request_;
  const Profile& profile_;
  std::shared_ptr<Profile> likely_, hoped_;
  std::set<std::pair<std::string, TileSize>> timed_;  // tiles, by the profile's key
  // By key and number of channels, the most that a tile was faster than the profile says.
  std::map<std::pair<std::string, int64_t>, double> best_;
};

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
    if (!other.ok() || other->cost.seconds * kFaster >= best->cost.seconds) break;
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
