// Trials: which of the plans that are predicted to be about as fast is so on the device.
#pragma once

#include "planner/plan_report.hpp"

namespace oocdnn {

// Times runs of a tile of the report's plan, of the others that its search ranked, in their order,
// of the best for each axis that is not cut, where arithmetic takes longest
// (model/search/axis_choices.hpp), and of those that searches find with what was learnt; leaves in
// the report the plan that is then the fastest. None is tried after the request's deadline, or that
// is predicted to be far slower than the best so far. `prepared` counts engine preparations. What
// the profile became: it agrees with every run.
Profile TryPlans(Device& device, const PlanRequest& request, const Profile& profile,
                 PlanReport* report, int64_t* prepared);

}  // namespace oocdnn
