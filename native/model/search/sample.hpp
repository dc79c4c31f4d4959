// Random plans, to judge the search by.
#pragma once

#include <cstdint>
#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

// Candidates that fit the budget by estimate, on all engines of the request, priced and all
// different: `count` of them, or as many as some hundred draws for each find. The same for the same
// seed.
std::vector<RankedCandidate> Sample(const PlanRequest& request, const Profile& profile, int count,
                                    uint64_t seed);

}  // namespace oocdnn
