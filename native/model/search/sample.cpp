#include "model/search/sample.hpp"

#include <algorithm>
#include <list>
#include <random>

#include "model/search/space.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kDraws = 200;   // for each candidate that is wanted
constexpr double kGrowth = 1.25;  // of lengths, see UsualLengths

class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed) {}
  size_t Below(size_t count) { return static_cast<size_t>(engine_() % count); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace

std::vector<RankedCandidate> Sample(const PlanRequest& request, const Profile& profile, int count,
                                    uint64_t seed) {
  std::vector<RankedCandidate> found;
  std::list<TileSpace> spaces;
  for (size_t i = 0; i < request.engines.size(); ++i) {
    if (!request.engines[i].name.empty()) {
      spaces.emplace_back(request, static_cast<int>(i), profile);
    }
  }
  if (spaces.empty()) return found;
  LengthLists lengths;
  for (int i = 0; i < kAxes; ++i) {
    lengths[i] = UsualLengths(request.problem, static_cast<Axis>(i), kGrowth);
  }
  Chance chance(seed);
  for (int64_t draw = 0; draw < kDraws * count && static_cast<int>(found.size()) < count; ++draw) {
    TileSpace& space = *std::next(spaces.begin(), static_cast<int>(chance.Below(spaces.size())));
    Cuts cuts{};
    for (int i = 0; i < kAxes; ++i) {
      cuts[i] = space.Cut(static_cast<Axis>(i), lengths[i][chance.Below(lengths[i].size())]);
    }
    const std::vector<Point>& points = space.AllPoints(cuts, {});
    if (points.empty()) continue;
    const Candidate candidate = space.CandidateOf(points[chance.Below(points.size())]);
    const bool known = std::any_of(found.begin(), found.end(), [&](const RankedCandidate& other) {
      return other.candidate == candidate;
    });
    if (!known) found.push_back({candidate, PriceOf(request, candidate, profile)});
  }
  return found;
}

}  // namespace oocdnn
