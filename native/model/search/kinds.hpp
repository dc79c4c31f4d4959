// Kinds of tiles, by the axis that is cut.
//
// A profile knows engines by the size of tiles alone, and a library may have a faster one for tiles
// of fewer channels, or of fewer samples, than for those that the price prefers. Where arithmetic
// is what takes longest, the best plan of each kind is therefore worth a run.
#pragma once

#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

// Whether what computes is busy for nearly all of the plan's time.
bool ArithmeticBounds(const Cost& cost);

// For each axis that may be cut and that the candidate does not cut, the best plan that does, by
// price; none that is predicted to take more than `slower` times as long as the candidate's `cost`.
// The channels that are summed are left whole, see PlanSearch.
std::vector<PlanSearch> OtherKinds(const PlanRequest& request, const Profile& profile,
                                   const RankedCandidate& chosen, double slower);

}  // namespace oocdnn
