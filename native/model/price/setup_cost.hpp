// One-time costs that the cost of a call does not include: preparing engines, and pinning memory
// that the caller may pin. Memory that a call pins itself is part of its cost.
#pragma once

#include <optional>
#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

// Seconds to prepare the candidate's engine in a new process, for full tiles and, where there are
// any, short ones; empty where the profile has no measurement. Plans are not ranked by it: engines
// of one family differ little in it, and a plan runs more than once.
std::optional<double> PrepareSeconds(const PlanRequest& request, const Candidate& candidate,
                                     const Profile& profile);

// The operands in pageable memory. The previous contents of the output count with the output.
std::vector<size_t> PageableOf(const PlanRequest& request);
// Bytes of the given operands that are in pageable memory.
int64_t PageableBytes(const PlanRequest& request, const Pinned& which);
// Seconds to pin and unpin them; empty where the profile has no measurement.
std::optional<double> PinSeconds(const PlanRequest& request, const Pinned& which,
                                 const Profile& profile);
// The same for all operands.
std::optional<double> PinSeconds(const PlanRequest& request, const Profile& profile);

}  // namespace oocdnn
