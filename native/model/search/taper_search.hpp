// Short tiles for the best of what a search has found.
#pragma once

#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

// Adds to candidates in order (see Rank) those of them with short tiles at the ends of an axis that
// are predicted to be clearly faster, and puts them in order again. Says how many were priced.
int64_t AddTapered(const PlanRequest& request, const Profile& profile,
                   std::vector<RankedCandidate>* ranked);

}  // namespace oocdnn
