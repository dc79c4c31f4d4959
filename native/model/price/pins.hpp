// Pins: which operands in pageable memory a call pins while it runs, and which it stages.
//
// Staging takes the host's threads a copy at each crossing, beside all else; pinning takes the
// whole operand's time once, before all else, and then each crossing goes at the wire's rate. So it
// is for operands that cross again and again.
#pragma once

#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

// How much faster a call must be by pinning: staging asks nothing of the system.
constexpr double kPinGain = 1.02;

// The request as the candidate finds it once it has pinned what it pins.
PlanRequest WithPinned(PlanRequest request, const Candidate& candidate);

// Of the operands in pageable memory those for which plans are worth searching that pin them: where
// the best plan so far would gain if that took no time, and some plan may by what it takes.
std::vector<Pinned> WorthPinning(const PlanRequest& request, const Profile& profile,
                                 const RankedCandidate& best);

// Has every candidate pin those operands with which it ends soonest, where that gains; within the
// request's bytes, and where the profile knows what pinning takes. One that is faster so than the
// first comes first.
void ChoosePins(const PlanRequest& request, const Profile& profile,
                std::vector<RankedCandidate>* ranked);

}  // namespace oocdnn
