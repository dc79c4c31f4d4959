// Assumptions: the rates that a price leans on and nobody has measured.
#pragma once

#include <string>
#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

// The names (model/profile/profile_rates.hpp) of the unmeasured rates of which twice or half would
// give the candidate another length or busy time; "flops onednn/f64/fwd" too where the profile has
// no such rate, and a relative's stands in for it. Prices the candidate twice for each unmeasured
// rate at most.
std::vector<std::string> Assumptions(const PlanRequest& request, const Candidate& candidate,
                                     const Profile& profile);

}  // namespace oocdnn
