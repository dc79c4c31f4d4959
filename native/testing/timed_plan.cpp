// A C function for plans whose runs are timed, on a device that says how long they took.
#include <cmath>

#include "planner/planning.hpp"
#include "planner/timed_plans.hpp"
#include "testing/export.hpp"
#include "testing/timed_device.hpp"

namespace oocdnn::testing {
namespace {

PlanRequest RequestOf(const Problem& problem, int64_t budget, const Device& device) {
  PlanRequest request;
  request.problem = problem;
  request.budget = budget;
  request.engines = device.engines();
  return request;
}

}  // namespace

// `runs`: how long runs of the engine take, and of a second one, or null. `measure_seconds`: the
// limit of planning by measurement, below 0: by estimate.
//
// The seconds that the chosen plan is predicted to take; `counts`: how many were prepared, and of
// how many rates the chosen one keeps what was learnt; text: why there is none, or the plan's.
OOC_EXPORT int oocdnn_testing_timed_plan(const Problem* problem, int64_t budget,
                                         const char* profile_text, const RunNanoseconds runs[2],
                                         double measure_seconds, double* seconds, int64_t counts[2],
                                         char* text, int64_t capacity) {
  const Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return Answer(profile.status(), text, capacity);
  TimedDevice device(runs[0], runs[1]);
  PlanRequest request = RequestOf(*problem, budget, device);
  request.measure = measure_seconds >= 0.0;
  if (request.measure) {
    request.deadline = DeadlineIn(measure_seconds);
  }
  counts[0] = 0;
  TimedTiles timed;
  const Result<PlanReport> report =
      PlanAndTime(device, request, profile.value(), &timed, &counts[0]);
  if (!report.ok()) return Answer(report.status(), text, capacity);
  *seconds = report.value().cost.seconds;
  counts[1] = report.value().rate_updates.count();
  CopyText(ToText(SummaryOf(report.value(), profile.value())), text, capacity);
  return 0;
}

// The same problem `count` times in one context, its operands on the device as the bits of
// `on_device` say. `worth`: planned gradually, where looking for plans so far took that much less
// than it might; NaN: by estimate. Of each: the seconds of its plan; `counts`: how many tiles were
// timed by then, and whether it is settled.
OOC_EXPORT int oocdnn_testing_timed_again(const Problem* problem, int64_t budget,
                                          const char* profile_text, RunNanoseconds nanoseconds,
                                          const int64_t* on_device, int64_t count, double worth,
                                          double* seconds, int64_t* counts) {
  const Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return static_cast<int>(profile.status().code());
  TimedDevice device(nanoseconds);
  TimedTiles timed;
  if (!std::isnan(worth)) timed.planning_seconds = -worth;
  int64_t prepared = 0;
  for (int64_t i = 0; i < count; ++i) {
    PlanRequest request = RequestOf(*problem, budget, device);
    request.gradual = !std::isnan(worth);
    for (int j = 0; j < kOperands; ++j) {
      if ((on_device[i] >> j & 1) != 0) request.tiers[j] = Tier::kDevice;
    }
    const Result<PlanReport> report =
        PlanAndTime(device, request, profile.value(), &timed, &prepared);
    if (!report.ok()) return static_cast<int>(report.status().code());
    seconds[i] = report.value().cost.seconds;
    counts[2 * i] = static_cast<int64_t>(timed.tiles.size());
    counts[2 * i + 1] = report.value().settled ? 1 : 0;
  }
  return 0;
}

}  // namespace oocdnn::testing
