// What a taper can gain is the time in which the busiest engine waits for the first tile or behind
// the last; only plans that lose much there are tried, and only while they have few tiles, of which
// the ends are a large part and which are priced quickly.
#include "model/taper_search.hpp"

#include <algorithm>
#include <optional>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

constexpr size_t kTried = 4;          // candidates
constexpr int64_t kMostSteps = 128;   // of each
constexpr double kGain = 0.995;       // of the untapered length, or less
constexpr int64_t kShare[] = {2, 4, 8};  // of a usual tile that a short one is

// The candidate with its tiles of one axis made as even as short ends allow; none where the axis is
// too short for them.
std::optional<Candidate> TaperedAt(const PlanRequest& request, const Candidate& candidate,
                                   const Taper& taper) {
  const auto i = static_cast<size_t>(Index(taper.axis));
  const int64_t between = candidate.tiling.extent[i] - 2 * taper.length;
  if (taper.length <= 0 || between <= 0) return std::nullopt;
  const EngineInfo& engine = request.engines[static_cast<size_t>(candidate.engine)];
  AxisArray length = candidate.tiling.length;
  length[i] = CeilDiv(between, CeilDiv(between, length[i]));
  Candidate tapered = candidate;
  tapered.tiling = Tapered(request.problem,
                           MakeTiling(request.problem, length, !engine.symmetric_padding), taper);
  if (!tapered.tiling.tapered()) return std::nullopt;
  return tapered;
}

class Tapering {
 public:
  Tapering(const PlanRequest& request, const Profile& profile)
      : request_(request), profile_(profile) {}

  // The best taper of the candidate; none that gains enough.
  std::optional<RankedCandidate> BestOf(const RankedCandidate& entry) {
    std::optional<RankedCandidate> best;
    double least = kGain * entry.cost.seconds;
    for (int i = 0; i < kAxes; ++i) {
      const auto axis = static_cast<Axis>(i);
      if (entry.candidate.tiling.Count(axis) <= 1) continue;
      for (const int64_t share : kShare) {
        const Taper taper{axis, entry.candidate.tiling.length[i] / share};
        const std::optional<Candidate> tapered = TaperedAt(request_, entry.candidate, taper);
        if (!tapered) continue;
        const Cost cost = PriceOf(request_, *tapered, profile_);
        ++priced_;
        if (cost.seconds > least) continue;
        least = cost.seconds;
        best = RankedCandidate{*tapered, cost};
      }
    }
    return best;
  }

  [[nodiscard]] int64_t priced() const { return priced_; }

 private:
  const PlanRequest& request_;
  const Profile& profile_;
  int64_t priced_ = 0;
};

// Whether the busiest engine waits long enough for a taper to gain anything.
bool HasRamps(const Cost& cost) {
  const double busiest = std::max({cost.fetch_seconds, cost.compute_seconds, cost.drain_seconds});
  return busiest < kGain * cost.seconds;
}

}  // namespace

int64_t AddTapered(const PlanRequest& request, const Profile& profile,
                   std::vector<RankedCandidate>* ranked) {
  Tapering tapering(request, profile);
  if (profile.shared_engines) return 0;
  const size_t tried = std::min(ranked->size(), kTried);
  for (size_t i = 0; i < tried; ++i) {
    const RankedCandidate entry = (*ranked)[i];
    if (entry.cost.steps > kMostSteps || !HasRamps(entry.cost)) continue;
    const std::optional<RankedCandidate> tapered = tapering.BestOf(entry);
    if (tapered) ranked->push_back(*tapered);
  }
  return tapering.priced();
}

}  // namespace oocdnn
