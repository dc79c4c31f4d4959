// Alternatives to a plan that cut another axis.
//
// A profile rates engines by the size of a tile alone. A library may have a faster kernel for tiles
// of fewer channels or fewer samples than for the tiles with the lowest predicted cost. Where
// arithmetic dominates, the best plan for each axis is therefore timed.
#pragma once

#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

// Returns true if the compute stage is busy for nearly all of the plan's time.
bool ArithmeticBounds(const Cost& cost);

// For each axis that may be cut and that the candidate does not cut: the plan that cuts it with the
// lowest predicted cost, unless that exceeds `slower` times the candidate's `cost`. The channels of
// a sum stay whole, see PlanSearch.
std::vector<PlanSearch> OtherAxisChoices(const PlanRequest& request, const Profile& profile,
                                         const RankedCandidate& chosen, double slower);

}  // namespace oocdnn
