// C function for profiles that come to agree with a call, for the tests in Python.
#include "model/search/refine.hpp"
#include "testing/export.hpp"
#include "testing/requests.hpp"

namespace oocdnn::testing {

// Searches a plan, has the profile agree with a call of it in which what computes was busy `factor`
// times as long as predicted, and prices the plan again. `seconds`: that busy time before, and as
// predicted afterwards; `text`: the name of the rate, or why there is none.
OOC_EXPORT int oocdnn_testing_refined(const Problem* problem, int64_t budget, const char* engines,
                                      const char* profile_text, double factor, double* seconds,
                                      char* text, int64_t capacity) {
  Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return Answer(profile.status(), text, capacity);
  const PlanRequest request = RequestOf(*problem, budget, engines);
  const Result<PlanSearch> search = Search(WithoutBounce(request), profile.value());
  if (!search.ok()) return Answer(search.status(), text, capacity);
  const Candidate& candidate = search->ranked.front().candidate;
  const auto busy = [&] { return PriceOf(request, candidate, profile.value()).compute_seconds; };
  seconds[0] = busy();
  const double run = RunSecondsOf(request, candidate, profile.value(), factor * seconds[0]);
  CopyText(Refine(request, candidate, run, {}, &profile.value()), text, capacity);
  seconds[1] = busy();
  return 0;
}

}  // namespace oocdnn::testing
