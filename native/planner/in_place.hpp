// Plans for operands that lie on the device: the whole problem at once, or its batch in parts, of
// which each is a part of the caller's own memory.
#pragma once

#include <vector>

#include "model/search/micro_batch.hpp"
#include "planner/plan_report.hpp"

namespace oocdnn {

// The request as it is priced for these operands in place.
PlanRequest PricedInPlace(const PlanRequest& request, const InPlace& in_place);
// The same before the candidate is prepared: with all that may be in place, if it cuts nothing but
// the batch.
PlanRequest PricedFor(const PlanRequest& request, const Candidate& candidate);

// How a batch is looked at: as a whole alone, or divided too; and whether runs are timed.
struct Batch {
  bool divided = false, timed = false;
};

// The best plan that cuts nothing but the batch, its copies of what does not lie as the engine
// wants it included: on the engine that is predicted to be the fastest of those that serve within
// the budget and the limit of workspace, and in the fewest parts; or whatever is the fastest of
// those that are timed. A whole that has no room to be timed is judged by a part of its batch.
// kUnsupported where a tensor is too large for one tile, kOutOfMemory where the budget is; and for
// a request of the first choice alone, rather than an engine that is far slower than one without
// room. `prepared` counts engine preparations.
Result<PlanReport> PlanInPlace(Device& device, const PlanRequest& request, const Profile& profile,
                               Batch batch, int64_t* prepared);

// Times parts of the batch, of sizes by the policy, on every engine, first with the request's limit
// of workspace and then with less and less: the ways to run the problem that divisions are made of.
// What its copies take is counted to a part. Sizes that cannot be timed within the budget are left
// out; where all are, why the last of them was, kOutOfMemory where it was for want of memory.
Result<std::vector<MicroBatch>> MeasureParts(Device& device, const PlanRequest& request,
                                             const Profile& profile, BatchPolicy policy,
                                             int64_t* prepared);

}  // namespace oocdnn
