// With short tiles at the ends the others may be longer: ramps no longer weigh against what each
// tile costs beside its bytes and its arithmetic. So longer tiles are tried too. Plans of many
// tiles are left alone: their ends are a small part, and they take long to price.
#include "model/search/taper_search.hpp"

#include <algorithm>
#include <optional>

#include "base/checked.hpp"
#include "model/price/cost.hpp"
#include "model/price/cuts.hpp"
#include "model/price/footprint.hpp"
#include "model/price/orders.hpp"
#include "model/price/rank.hpp"

namespace oocdnn {
namespace {

constexpr size_t kLookedAt = 24;       // candidates
constexpr size_t kTried = 3;           // of those, with different loops
constexpr int64_t kMostSteps = 256;    // of each
constexpr int64_t kMostPriced = 1500;  // steps in all: pricing them takes less than a millisecond
constexpr double kGain = 0.995;        // of the untapered length, or less
constexpr int64_t kLonger[] = {1, 2, 3};  // times as long as before are usual tiles
constexpr int64_t kShare[] = {2, 4, 8};   // of a usual tile that a short one is

bool Cuts(const Candidate& candidate, Axis axis) { return candidate.tiling.Count(axis) > 1; }

// Whether the same axes are cut, in the same order.
bool SameLoops(const Candidate& a, const Candidate& b) {
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (Cuts(a, axis) != Cuts(b, axis)) return false;
  }
  return a.order == b.order;
}

class Tapering {
 public:
  Tapering(const PlanRequest& request, const Rates& rates) : request_(request), rates_(rates) {}

  // The best taper of the candidate; none that gains enough.
  std::optional<RankedCandidate> BestOf(const RankedCandidate& entry) {
    best_.reset();
    least_ = kGain * entry.cost.seconds;
    for (const Axis axis : entry.candidate.order) {
      if (!Cuts(entry.candidate, axis)) continue;
      for (const int64_t longer : kLonger) {
        const int64_t usual = Mul(entry.candidate.tiling.length[Index(axis)], longer);
        for (const int64_t share : kShare) Try(entry.candidate, usual, {axis, usual / share});
      }
    }
    if (best_) LookAround(best_->candidate);
    return best_;
  }

  [[nodiscard]] int64_t priced() const { return priced_; }

 private:
  // A quarter longer and shorter, of both lengths.
  void LookAround(const Candidate& tapered) {
    const Taper taper = tapered.tiling.taper;
    const int64_t usual = tapered.tiling.length[Index(taper.axis)];
    for (const int64_t quarters : {3, 5}) {
      Try(tapered, Mul(usual, quarters) / 4, taper);
      Try(tapered, usual, {taper.axis, CeilDiv(Mul(taper.length, quarters), 4)});
    }
  }

  // Usual tiles of at most that length, as even as short ends allow.
  void Try(const Candidate& untapered, int64_t usual, Taper taper) {
    const Problem& problem = request_.problem;
    const int64_t unit = request_.reproducible ? SumUnit(problem, taper.axis) : 1;
    taper.length = RoundUp(taper.length, unit);
    const int64_t between = untapered.tiling.extent[Index(taper.axis)] - 2 * taper.length;
    if (taper.length <= 0 || between <= 0) return;
    const EngineInfo& engine = request_.engines[static_cast<size_t>(untapered.engine)];
    AxisArray length = untapered.tiling.length;
    length[Index(taper.axis)] = RoundUp(CeilDiv(between, CeilDiv(between, usual)), unit);
    Candidate tapered = untapered;
    tapered.tiling =
        Tapered(problem, MakeTiling(problem, length, !engine.symmetric_padding), taper);
    const int64_t steps = tapered.tiling.Tiles();
    if (!tapered.tiling.tapered() || steps > steps_left_ || !Allowed(tapered)) return;
    const Cost cost = PriceOf(request_, tapered, rates_, least_);
    ++priced_;
    steps_left_ -= steps;
    if (cost.seconds > least_) return;
    least_ = cost.seconds;
    best_ = RankedCandidate{tapered, cost};
  }

  // Longer tiles than those that the search found may break the rules that it keeps.
  [[nodiscard]] bool Allowed(const Candidate& tapered) const {
    const Problem& problem = request_.problem;
    const Tiling& tiling = tapered.tiling;
    const Footprint footprint(problem, request_.engines[static_cast<size_t>(tapered.engine)]);
    return EstimateBytes(request_, tapered) <= request_.budget &&
           footprint.Indexable(TileShape(problem, tiling)) &&
           (!request_.reproducible || KeepsSummationOrder(problem, tiling));
  }

  const PlanRequest& request_;
  const Rates& rates_;
  std::optional<RankedCandidate> best_;
  double least_ = 0.0;
  int64_t priced_ = 0, steps_left_ = kMostPriced;
};

// Of candidates with the same loops the first, unless it has too many tiles.
std::vector<RankedCandidate> WorthTapering(const std::vector<RankedCandidate>& ranked) {
  std::vector<RankedCandidate> worth;
  for (size_t i = 0; i < std::min(ranked.size(), kLookedAt) && worth.size() < kTried; ++i) {
    const bool known = std::any_of(worth.begin(), worth.end(), [&](const RankedCandidate& other) {
      return SameLoops(other.candidate, ranked[i].candidate);
    });
    if (!known && ranked[i].cost.steps <= kMostSteps) worth.push_back(ranked[i]);
  }
  return worth;
}

}  // namespace

int64_t AddTapered(const PlanRequest& request, const Profile& profile,
                   std::vector<RankedCandidate>* ranked) {
  if (profile.shared_engines || ranked->empty()) return 0;  // nothing waits there
  const Rates rates(request, ranked->front().candidate.engine, profile);
  Tapering tapering(request, rates);
  for (const RankedCandidate& entry : WorthTapering(*ranked)) {
    const std::optional<RankedCandidate> tapered = tapering.BestOf(entry);
    if (tapered) ranked->push_back(*tapered);
  }
  Rank(ranked);
  return tapering.priced();
}

}  // namespace oocdnn
