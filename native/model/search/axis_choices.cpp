#include "model/search/axis_choices.hpp"

#include <utility>

#include "model/price/orders.hpp"

namespace oocdnn {

bool ArithmeticBounds(const Cost& cost) {
  constexpr double kNearlyAll = 0.8;
  return cost.compute_seconds >= kNearlyAll * cost.seconds;
}

std::vector<PlanSearch> OtherAxisChoices(const PlanRequest& request, const Profile& profile,
                                         const RankedCandidate& chosen, double slower) {
  std::vector<PlanSearch> kinds;
  const Axis summed = SummedChannels(request.problem);
  for (const Axis axis : {Axis::kK, Axis::kC, Axis::kN, Axis::kH}) {
    const bool may = axis == Axis::kN || axis != summed;
    const bool new_kind = chosen.candidate.tiling.Count(axis) <= 1;
    if (!may || !new_kind || ExtentsOf(request.problem)[Index(axis)] <= 1) continue;
    PlanRequest other = request;
    other.cuts = axis;
    Result<PlanSearch> search = Search(other, profile);
    if (!search.ok()) continue;
    if (search->ranked.front().cost.seconds > slower * chosen.cost.seconds) continue;
    kinds.push_back(std::move(search).value());
  }
  return kinds;
}

}  // namespace oocdnn
