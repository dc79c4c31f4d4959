// A C function for every candidate there is, priced one by one: what the search is judged by. It
// shares prices with it, and no list, bound or rule.
#include <algorithm>
#include <limits>
#include <vector>

#include "model/plan.hpp"
#include "model/price/cost.hpp"
#include "testing/export.hpp"
#include "testing/requests.hpp"

namespace oocdnn::testing {
namespace {

constexpr int kMostSlots = 3;

// Of the candidates without partial sums, and of those with them: how many fit, the least seconds,
// and the least that RankOf makes of a price.
struct Least {
  int64_t count = 0;
  double seconds = std::numeric_limits<double>::infinity();
  double rank = std::numeric_limits<double>::infinity();
};

class Enumeration {
 public:
  Enumeration(const PlanRequest& request, const Profile& profile, Least* least)
      : request_(request), problem_(request.problem), profile_(profile), least_(least) {}

  void Run() { Lengths(0, {}); }

 private:
  // All lengths of the axes from `axis` on.
  void Lengths(int axis, AxisArray lengths) {
    if (axis == kAxes) {
      const bool as_data = !request_.engines.front().symmetric_padding;
      const Tiling tiling = MakeTiling(problem_, lengths, as_data);
      if (tiling.length == lengths) Orders(tiling);  // else another makes the same
      return;
    }
    for (int64_t length = 1; length <= ExtentsOf(problem_)[axis]; ++length) {
      lengths[axis] = length;
      Lengths(axis + 1, lengths);
    }
  }

  // All legal orders; where an axis has one piece, its place is of no consequence.
  void Orders(const Tiling& tiling) {
    std::vector<Axis> cut, whole;
    for (int a = 0; a < kAxes; ++a) {
      const auto axis = static_cast<Axis>(a);
      (tiling.Count(axis) > 1 ? cut : whole).push_back(axis);
    }
    do {
      Candidate candidate{tiling, {}, {}, 0};
      std::copy(whole.begin(), whole.end(),
                std::copy(cut.begin(), cut.end(), candidate.order.begin()));
      if (IsLegal(problem_, tiling, candidate.order)) Depths(0, candidate);
    } while (std::next_permutation(cut.begin(), cut.end()));
  }

  // All ring depths of x, w and y, or the bias where that is the output; others have the output's.
  void Depths(int operand, Candidate candidate) {
    if (operand == kOperands) {
      Follow(&candidate);
      Price(candidate);
      return;
    }
    const auto which = static_cast<Operand>(operand);
    const bool free = which == Operand::kX || which == Operand::kW || which == Operand::kY ||
                      which == problem_.output();
    const int64_t most = !free || !problem_.Uses(which)
                             ? 0
                             : std::min<int64_t>(Boxes(candidate.tiling, which), kMostSlots);
    candidate.depths[operand] = 0;
    if (most == 0) Depths(operand + 1, candidate);
    for (int depth = 1; depth <= most; ++depth) {
      candidate.depths[operand] = depth;
      Depths(operand + 1, candidate);
    }
  }

  void Follow(Candidate* candidate) const {
    const int of_output = candidate->depths[Index(problem_.output())];
    for (int i = 0; i < kOperands; ++i) {
      const auto operand = static_cast<Operand>(i);
      if (!problem_.Uses(operand) || candidate->depths[i] > 0) continue;
      candidate->depths[i] =
          static_cast<int>(std::min<int64_t>(Boxes(candidate->tiling, operand), of_output));
    }
  }

  [[nodiscard]] int64_t Boxes(const Tiling& tiling, Operand operand) const {
    int64_t boxes = 1;
    for (int a = 0; a < kAxes; ++a) {
      const auto axis = static_cast<Axis>(a);
      if (Moves(problem_, operand, axis)) boxes *= tiling.Count(axis);
    }
    return boxes;
  }

  void Price(const Candidate& candidate) {
    if (EstimateBytes(request_, candidate) > request_.budget) return;
    const Cost cost = PriceOf(request_, candidate, profile_);
    const Axis summed = problem_.direction == Direction::kForward ? Axis::kC : Axis::kK;
    const bool partial =
        problem_.direction <= Direction::kBackwardData && candidate.tiling.Count(summed) > 1;
    Least& least = least_[partial ? 1 : 0];
    ++least.count;
    least.seconds = std::min(least.seconds, cost.seconds);
    least.rank = std::min(least.rank, RankOf(cost, cost.seconds));
  }

  const PlanRequest& request_;
  const Problem& problem_;
  const Profile& profile_;
  Least* least_;
};

}  // namespace

// Of all candidates on the first engine that fit the budget, those without partial sums and those
// with them: the least seconds and the least rank of each; returns how many there are, or -1 where
// the profile is refused.
OOC_EXPORT int64_t oocdnn_testing_enumerate(const Problem* problem, int64_t budget,
                                            const char* engines, const char* profile_text,
                                            double seconds[2], double ranks[2]) {
  const Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return -1;
  const PlanRequest request = RequestOf(*problem, budget, engines);
  Least least[2];
  Enumeration(request, profile.value(), least).Run();
  for (int i = 0; i < 2; ++i) {
    seconds[i] = least[i].seconds;
    ranks[i] = least[i].rank;
  }
  return least[0].count + least[1].count;
}

}  // namespace oocdnn::testing
