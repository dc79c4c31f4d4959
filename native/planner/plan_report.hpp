// From a problem and a budget to a booked plan with what it was chosen from.
#pragma once

#include <string>
#include <vector>

#include "exec/booking.hpp"
#include "model/profile/rate_updates.hpp"
#include "model/text/summary.hpp"

namespace oocdnn {

// A plan and the reasons for it.
struct PlanReport {
  PlanRequest request;
  Booking booking;
  Cost cost;
  double run_seconds = 0.0;  // of a tile's convolution, where a run was timed
  bool remembered = false;   // it was neither searched for nor timed now
  bool transient = false;    // a candidate was refused for a moment's reason, see IsTransient
  bool settled = true;       // else another look may find a better one, see MayLook
  double search_seconds = 0.0;
  std::vector<RankedCandidate> ranked;
  std::vector<std::string> refused;  // by the search, by an engine, by exact bytes
  RateUpdates rate_updates;          // of the runs that were timed, if any

  // Whether all of the caller's that has samples is used where it lies.
  [[nodiscard]] bool CopiesNoSamples() const;
  // What was timed is not given up for what is merely predicted.
  [[nodiscard]] bool Beats(const PlanReport& other) const;
};

// True if a plan failed for a reason of the moment, and may be had later: the device or the host
// lacks memory, of which no budget is said that would work, or the device failed.
bool IsTransient(const Status& status);

// Whether the problem is valid and has something to plan.
Status CheckPlannable(const Problem& problem);

// Bounce memory of each stream for a device that is at its fastest with `best` bytes: at most some
// hundredths of the budget, and nothing where it would make short pieces.
int64_t BounceWithin(int64_t budget, int64_t best);

// Searches, prepares the best candidates in order and books the first whose exact bytes fit;
// searches again with less where none does. `prepared` counts engine preparations; `search`: what
// is found within all of the budget (without bounce memory), where that is known.
Result<PlanReport> PlanAndBook(Device& device, const PlanRequest& request, const Profile& profile,
                               int64_t* prepared, const PlanSearch* search = nullptr);

// The least budget that works: what the failed plan says, raised step by step until a booking
// succeeds, and lowered by bisection for at most two seconds, after which it is a budget that
// works. `failure` where none does; another error where the budget is not the reason.
Result<int64_t> LeastBudget(Device& device, const PlanRequest& request, const Profile& profile,
                            Status failure);

// The report as values, with the rates that it was made with.
PlanSummary SummaryOf(const PlanReport& report, const Profile& profile);

}  // namespace oocdnn
