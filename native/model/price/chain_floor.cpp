#include "model/price/chain_floor.hpp"

#include <algorithm>

#include "model/price/cost.hpp"

namespace oocdnn {
namespace {

// The link within a section, as it is planned there: what others have or leave lies in tiles.
PlanRequest Within(const PlanRequest& link, Operand other) {
  PlanRequest within = link;
  within.fuses = within.may_compile = true;
  for (const Operand operand : {other, Operand::kResidual}) {
    within.tiers[Index(operand)] = Tier::kTile;
  }
  return within;
}

}  // namespace

ChainFloors::ChainFloors(const std::vector<PlanRequest>& links, const Profile& profile)
    : compute_{0.0} {
  for (const PlanRequest& link : links) {
    const PlanRequest head = Within(link, link.problem.output());
    compute_.push_back(compute_.back() + ComputeFloorOf(head, profile));
    head_.push_back(FloorOf(head, profile));
    tail_.push_back(FloorOf(Within(link, Operand::kX), profile));
  }
}

double ChainFloors::Of(size_t begin, size_t end) const {
  return std::max({compute_[end] - compute_[begin], head_[begin], tail_[end - 1]});
}

}  // namespace oocdnn
