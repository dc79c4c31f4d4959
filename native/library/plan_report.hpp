// From a problem and a budget to a booked plan with its reasons.
#pragma once

#include <string>
#include <vector>

#include "exec/booking.hpp"

namespace oocdnn {

// A plan and the reasons for it.
struct PlanReport {
  Booking booking;
  Cost cost;
  int64_t budget = 0;
  std::vector<RankedCandidate> ranked;
  std::vector<std::string> engine_of;  // the engine's name of each ranked candidate
  std::vector<std::string> refused;    // by the search, by an engine, by exact bytes
  std::string text;                    // all of this for people
};

// Searches, prepares the best candidates in order and books the first whose exact bytes fit;
// searches again with less where none does. Where engines are tried out and the profile was
// measured, a run of what is booked is timed: if it takes longer than predicted, and another plan
// promises to be faster, that is booked and timed too, and so on; the best of them is the plan.
// `prepared` counts engine preparations.
Result<PlanReport> PlanAndBook(Device& device, const PlanRequest& request, const Profile& profile,
                               int64_t* prepared);

// The plan for operands that lie on the device, see Book: the whole problem at once, on the engine
// that is predicted to be the fastest of those that serve within the budget, its copies of what
// does not lie as it wants it included. kUnsupported where a tensor is too large for one tile,
// kOutOfMemory where the budget is.
Result<PlanReport> PlanInPlace(Device& device, const PlanRequest& request, const Profile& profile,
                               const InPlace& may, int64_t* prepared);

// A budget that is known to work, close to the least: what the failed plan says, raised step by
// step until a booking succeeds. 0 where none does, whatever the budget.
int64_t WorkingBudget(Device& device, const PlanRequest& request, const Profile& profile,
                      const Status& failure);

// The report as text: problem, chosen plan, other candidates, refusals.
std::string Explain(const PlanReport& report, const PlanRequest& request);

}  // namespace oocdnn
