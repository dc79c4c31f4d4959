// Timeline: when the pipeline that a price was walked with does each piece of work.
#pragma once

#include "model/plan.hpp"

namespace oocdnn {

enum class Track : uint8_t { kFetch, kCompute, kDrain };
const char* Name(Track track);  // "fetch", "compute", "drain"

// One transfer, convolution or move of rolled rows, in seconds from the beginning of the call.
struct Interval {
  Track track = Track::kFetch;
  int64_t step = 0;
  double begin = 0.0, end = 0.0;
};

// The work of the first and the last `steps` / 2 steps, in the order in which it is enqueued; of
// more than a hundred thousand steps the first ones alone. The last end may come before what
// PriceOf says, which knows of more than the pipeline.
std::vector<Interval> TimelineOf(const PlanRequest& request, const Candidate& candidate,
                                 const Profile& profile, int64_t steps);

}  // namespace oocdnn
