// C functions for plans as text, and for random ones.
#include "base/json.hpp"
#include "model/search/sample.hpp"
#include "model/text/plan_text.hpp"
#include "testing/export.hpp"
#include "testing/requests.hpp"

namespace oocdnn::testing {
namespace {

std::string Json(const PlanRequest& request, const Profile& profile,
                 const RankedCandidate& ranked) {
  const std::string text = ToText(request, ranked.candidate);
  const Result<RankedCandidate> again = ParsePlan(request, profile, text);
  const bool same = again.ok() && again->candidate.tiling == ranked.candidate.tiling &&
                    again->candidate.engine == ranked.candidate.engine &&
                    again->candidate.depths == ranked.candidate.depths &&
                    again->cost.seconds == ranked.cost.seconds;
  return Format("{\"text\":%s,\"same\":%s,\"seconds\":%.17g,\"device_bytes\":%lld}",
                JsonString(text).c_str(), same ? "true" : "false", ranked.cost.seconds,
                static_cast<long long>(ranked.cost.device_bytes));
}

}  // namespace

// Random candidates, each as text, and whether that reads back as the same plan; with `seed` 0
// those of the search instead.
OOC_EXPORT int oocdnn_testing_plan_texts(const Problem* problem, int64_t budget,
                                         const char* engines, const char* profile_text, int count,
                                         int64_t seed, char* json, int64_t capacity) {
  const Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return Answer(profile.status(), json, capacity);
  PlanRequest request = RequestOf(*problem, budget, engines);
  request.best = count;
  std::vector<RankedCandidate> found;
  if (seed != 0) {
    found = Sample(request, profile.value(), count, static_cast<uint64_t>(seed));
  } else {
    const Result<PlanSearch> search = Search(request, profile.value());
    if (!search.ok()) return Answer(search.status(), json, capacity);
    found = search.value().ranked;
  }
  std::string list;
  for (const RankedCandidate& ranked : found) {
    list += (list.empty() ? "" : ",") + Json(request, profile.value(), ranked);
  }
  CopyText("[" + list + "]", json, capacity);
  return 0;
}

// The plan as it is printed again. `reproducible`: whether its bits may not depend on it.
OOC_EXPORT int oocdnn_testing_parse_plan(const Problem* problem, const char* engines,
                                         int reproducible, const char* text, char* printed,
                                         int64_t capacity) {
  PlanRequest request = RequestOf(*problem, 0, engines);
  request.reproducible = reproducible != 0;
  const Result<RankedCandidate> plan = ParsePlan(request, Profile{}, text);
  if (!plan.ok()) return Answer(plan.status(), printed, capacity);
  CopyText(ToText(request, plan->candidate), printed, capacity);
  return 0;
}

}  // namespace oocdnn::testing
