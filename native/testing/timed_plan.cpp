// A C door to plans whose runs are timed, on a device that says how long they took.
#include "library/planning.hpp"
#include "library/timed_plans.hpp"
#include "testing/door.hpp"
#include "testing/timed_device.hpp"

namespace oocdnn::testing {

// `measure_seconds`: the limit of planning by measurement, below 0: by estimate.
//
// The seconds that the chosen plan is predicted to take, and how many were prepared; text: why
// there is none, or the plan's.
OOC_DOOR int oocdnn_testing_timed_plan(const Problem* problem, int64_t budget,
                                       const char* profile_text, RunNanoseconds nanoseconds,
                                       double measure_seconds, double* seconds, int64_t* prepared,
                                       char* text, int64_t capacity) {
  const Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return Answer(profile.status(), text, capacity);
  TimedDevice device(nanoseconds);
  PlanRequest request;
  request.problem = *problem;
  request.budget = budget;
  request.engines = device.engines();
  request.measure = measure_seconds >= 0.0;
  if (request.measure) {
    request.deadline = DeadlineIn(measure_seconds);
  }
  *prepared = 0;
  const Result<PlanReport> report = PlanAndTime(device, request, profile.value(), prepared);
  if (!report.ok()) return Answer(report.status(), text, capacity);
  *seconds = report.value().cost.seconds;
  CopyText(ToText(SummaryOf(report.value(), profile.value())), text, capacity);
  return 0;
}

}  // namespace oocdnn::testing
