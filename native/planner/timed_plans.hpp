// Plans that are put to the proof before they are taken.
#pragma once

#include "planner/plan_report.hpp"
#include "planner/timed_tiles.hpp"

namespace oocdnn {

// As PlanAndBook; and where the request asks to measure, the best few are timed (TryPlans). Else,
// where engines are tried out and the profile was measured, a run of what is booked is timed. If
// another plan promises to be faster than that, it is booked and timed too, and so on a few times
// or until that has taken the device half a second; the best of them is the plan. A
// promise is what the profile says, which has learnt from the runs; or, where that is clearly more,
// what it would say if all tiles were a tenth faster than the fastest of their number of channels
// or of fewer: a plan that is thought slow by mistake would never be timed otherwise.
// `timed`: of this problem, which count as timed now; what is timed comes to them.
//
// A request that is planned gradually gets less of that while its calls have taken little time
// (MayLook): the first plan, or one of a tile that was timed before unless others promise to be far
// faster. Such a plan is not settled. Once calls have taken long enough, and where arithmetic is
// what takes longest, the best of each other kind of tile is timed too
// (model/search/axis_choices.hpp).
Result<PlanReport> PlanAndTime(Device& device, const PlanRequest& request, const Profile& profile,
                               TimedTiles* timed, int64_t* prepared);

}  // namespace oocdnn
