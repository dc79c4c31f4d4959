#include "model/search/rate_estimate.hpp"

#include <algorithm>
#include <cmath>

namespace oocdnn {
namespace {

// By how much tiles of the problem may be faster than the fastest of their number of channels that
// was measured.
constexpr double kHope = 1.1;
constexpr double kNear = 0.03;  // sizes that differ by less, as a share, are alike

}  // namespace

RateEstimate::RateEstimate(const PlanRequest& request, const Profile& profile)
    : request_(request), profile_(profile), likely_(profile), hoped_(profile) {
  for (auto& [_, rates] : hoped_.tiles) {
    rates = AllAsFast(rates);
    for (auto& [size, rate] : rates) rate *= kHope;
  }
}

// Priced first: short tiles are to the usual ones as the profile had it.
Cost RateEstimate::Learn(const Candidate& candidate, double run_seconds) {
  const Cost cost = PriceOf(request_, candidate, likely_, run_seconds);
  Recall(candidate, run_seconds);
  return cost;
}

void RateEstimate::Recall(const Candidate& candidate, double run_seconds) {
  const TileRate before = RateOfTile(request_, candidate, likely_);
  Disappoint(candidate, run_seconds);
  Refine(request_, candidate, run_seconds, {}, &likely_);
  const TileRate after = RateOfTile(request_, candidate, likely_);
  timed_.insert({after.key, after.size});
  ScaleOthers(after, std::sqrt(after.rate / before.rate), &likely_);
  const double surprise = after.rate / RateOfTile(request_, candidate, profile_).rate;
  const auto [best, first] = best_.try_emplace({after.key, after.size.channels}, surprise);
  const double known = first ? 1.0 : best->second;
  best->second = std::max(best->second, surprise);
  ScaleOthers(after, best->second / known, &hoped_);
}

std::optional<RateEstimate::Promise> RateEstimate::Promising(double seconds) const {
  std::optional<Promise> promise = Promised(likely_, seconds / kFaster);
  return promise ? std::move(promise) : Promised(hoped_, seconds / kHopedFaster);
}

void RateEstimate::Disappoint(const Candidate& candidate, double run_seconds) {
  const TileRate hope = RateOfTile(request_, candidate, hoped_);
  for (const double near : {1 - kNear, 1 + kNear}) {
    const auto outputs = static_cast<double>(hope.size.outputs);
    const TileSize size = {hope.size.channels, std::llround(near * outputs)};
    if (timed_.contains({hope.key, size})) continue;
    AddTile(size, hope.rate, hope.rate, &hoped_.OwnTiles(hope.key));
  }
  Refine(request_, candidate, run_seconds, {}, &hoped_);
}

void RateEstimate::ScaleOthers(const TileRate& timed, double factor, Profile* profile) const {
  for (auto& [size, rate] : profile->tiles[timed.key]) {
    const bool alike = size.channels == timed.size.channels;
    if (alike && !timed_.contains({timed.key, size})) rate *= factor;
  }
}

std::optional<RateEstimate::Promise> RateEstimate::Promised(const Profile& profile,
                                                            double seconds) const {
  Result<PlanSearch> search = Search(WithoutBounce(request_), profile);
  if (!search.ok() || search->ranked.front().cost.seconds >= seconds) return std::nullopt;
  return Promise{profile, std::move(search).value()};
}

}  // namespace oocdnn
