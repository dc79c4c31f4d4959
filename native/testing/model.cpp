// C functions for the planner for the tests in Python: profiles, prices, searches.
//
// Problems and tilings cross as tests/geometry/core.py mirrors them, profiles in their text form,
// results as JSON.
// A function that can fail returns the Status code and writes its text in place of the result.
#include <algorithm>
#include <string>

#include "base/json.hpp"
#include "base/numbers.hpp"
#include "model/plan.hpp"
#include "model/price/cost.hpp"
#include "testing/export.hpp"
#include "testing/requests.hpp"

namespace oocdnn {
namespace {

using testing::Answer;
using testing::CopyText;
using testing::RequestOf;

Candidate CandidateOf(const Tiling& tiling, const int32_t* order, const int32_t* depths,
                      int engine) {
  Candidate candidate;
  candidate.tiling = tiling;
  for (int i = 0; i < kAxes; ++i) candidate.order[i] = static_cast<Axis>(order[i]);
  std::copy(depths, depths + kOperands, candidate.depths.begin());
  candidate.engine = engine;
  return candidate;
}

template <class Values>
std::string List(const Values& values) {
  std::string text;
  for (const auto& value : values) {
    text += (text.empty() ? "" : ",") + NumberText(static_cast<int64_t>(value));
  }
  return "[" + text + "]";
}

std::string Json(const Cost& cost) {
  return Format(
      "{\"seconds\":%.17g,\"fetch_seconds\":%.17g,\"compute_seconds\":%.17g,"
      "\"drain_seconds\":%.17g,\"bytes_in\":%lld,\"bytes_out\":%lld,"
      "\"device_bytes\":%lld,\"steps\":%lld}",
      cost.seconds, cost.fetch_seconds, cost.compute_seconds, cost.drain_seconds,
      static_cast<long long>(cost.bytes_in), static_cast<long long>(cost.bytes_out),
      static_cast<long long>(cost.device_bytes), static_cast<long long>(cost.steps));
}

std::string Json(const PlanRequest& request, const RankedCandidate& ranked) {
  const Candidate& candidate = ranked.candidate;
  const TileOp op = OpOf(request, candidate);
  return "{\"engine\":" + NumberText(candidate.engine) +
         ",\"extent\":" + List(candidate.tiling.extent) +
         ",\"length\":" + List(candidate.tiling.length) +
         ",\"padding_as_data\":" + List(candidate.tiling.padding_as_data) +
         ",\"full_padding\":" + (candidate.tiling.full_padding ? "true" : "false") + ",\"taper\":" +
         List(std::array{static_cast<int64_t>(candidate.tiling.taper.axis),
                         candidate.tiling.taper.length}) +
         ",\"order\":" + List(candidate.order) + ",\"depths\":" + List(candidate.depths) +
         ",\"accumulates\":" + (op.accumulates ? "true" : "false") +
         ",\"out_dtype\":" + NumberText(static_cast<int>(op.out_dtype)) +
         ",\"estimate\":" + NumberText(EstimateBytes(request, candidate)) +
         ",\"text\":" + JsonString(Describe(request, candidate)) +
         ",\"cost\":" + Json(ranked.cost) + "}";
}

std::string Json(const PlanRequest& request, const PlanSearch& search) {
  std::string ranked, refused;
  for (const RankedCandidate& entry : search.ranked) {
    ranked += (ranked.empty() ? "" : ",") + Json(request, entry);
  }
  for (const std::string& reason : search.refused) {
    refused += (refused.empty() ? "" : ",") + JsonString(reason);
  }
  return Format("{\"considered\":%lld,\"seconds\":%.17g,\"ranked\":[",
                static_cast<long long>(search.considered), search.seconds) +
         ranked + "],\"refused\":[" + refused + "]}";
}

}  // namespace

// Reads a profile and prints it again; `flops` receives the rate of one key.
OOC_EXPORT int oocdnn_testing_profile(const char* text, const char* engine, int dtype, int math,
                                      int direction, double* flops, char* printed,
                                      int64_t capacity) {
  Result<Profile> profile = ParseProfile(text);
  if (!profile.ok()) return Answer(profile.status(), printed, capacity);
  *flops = profile.value().Flops(engine, static_cast<DType>(dtype), static_cast<Math>(math),
                                 static_cast<Direction>(direction));
  CopyText(ToText(profile.value()), printed, capacity);
  return 0;
}

// The text of a profile as it is built in.
OOC_EXPORT void oocdnn_testing_default_profile(char* text, int64_t capacity) {
  CopyText(ToText(Profile{}), text, capacity);
}

// Prices one candidate on the first engine. `tiers`: where each operand is, and last how many other
// GPUs are busy.
OOC_EXPORT int oocdnn_testing_price(const Problem* problem, const Tiling* tiling,
                                    const int32_t* order, const int32_t* depths,
                                    const int32_t* tiers, const char* engines,
                                    const char* profile_text, char* json, int64_t capacity) {
  Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return Answer(profile.status(), json, capacity);
  profile->busy_gpus = tiers[kOperands];
  PlanRequest request = RequestOf(*problem, INT64_MAX, engines);
  for (int i = 0; i < kOperands; ++i) request.tiers[i] = static_cast<Tier>(tiers[i]);
  const Candidate candidate = CandidateOf(*tiling, order, depths, 0);
  CopyText(Json(PriceOf(request, candidate, profile.value())), json, capacity);
  return 0;
}

// The seconds that no plan on the first engine undercuts; -1 where the profile is refused.
OOC_EXPORT double oocdnn_testing_floor(const Problem* problem, const char* engines,
                                       const char* profile_text) {
  Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return -1.0;
  return FloorOf(RequestOf(*problem, INT64_MAX, engines), 0, profile.value());
}

OOC_EXPORT int64_t oocdnn_testing_estimate(const Problem* problem, const Tiling* tiling,
                                           const int32_t* depths, const char* engines) {
  const int32_t order[kAxes] = {0, 1, 2, 3, 4, 5, 6};
  return EstimateBytes(RequestOf(*problem, 0, engines), CandidateOf(*tiling, order, depths, 0));
}

// `flags`: 1 reproducible, 2 exhaustive. `detail` receives the status's number.
OOC_EXPORT int oocdnn_testing_search(const Problem* problem, int64_t budget, const char* engines,
                                     int flags, int best, const char* profile_text, int64_t* detail,
                                     char* json, int64_t capacity) {
  Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return Answer(profile.status(), json, capacity);
  PlanRequest request = RequestOf(*problem, budget, engines);
  request.reproducible = (flags & 1) != 0;
  request.exhaustive = (flags & 2) != 0;
  request.best = best;
  Result<PlanSearch> search = Search(request, profile.value());
  *detail = search.status().detail();
  if (!search.ok()) return Answer(search.status(), json, capacity);
  CopyText(Json(request, search.value()), json, capacity);
  return 0;
}

}  // namespace oocdnn
