// What goes before calls and is in no price: preparing engines, and pinning what the caller may
// pin. What a call pins itself is in its price.
#pragma once

#include <optional>
#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

// Seconds that a process which has prepared nothing takes to prepare the candidate for usual tiles
// and, where there are any, short ones. Nothing where the profile does not know. Plans are not
// ranked by it: engines of one family differ little in it, and a plan is run more than once.
std::optional<double> PrepareSeconds(const PlanRequest& request, const Candidate& candidate,
                                     const Profile& profile);

// The operands in pageable memory; what the output held before is where the output is.
std::vector<size_t> PageableOf(const PlanRequest& request);
// Bytes of those of the operands that are in pageable memory.
int64_t PageableBytes(const PlanRequest& request, const Pinned& which);
// Seconds that pinning them takes, and letting them go again. Nothing where the profile does not
// know.
std::optional<double> PinSeconds(const PlanRequest& request, const Pinned& which,
                                 const Profile& profile);
// Of all of them.
std::optional<double> PinSeconds(const PlanRequest& request, const Profile& profile);

}  // namespace oocdnn
