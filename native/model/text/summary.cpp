#include "model/text/summary.hpp"

#include "model/price/cost.hpp"
#include "model/price/setup_cost.hpp"
#include "model/text/assumptions.hpp"
#include "model/text/plan_text.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kStepsShown = 100;

const std::string& EngineOf(const PlanRequest& request, const Candidate& candidate) {
  return request.engines[static_cast<size_t>(candidate.engine)].name;
}

}  // namespace

RunnerUp RunnerUpOf(const PlanRequest& request, const RankedCandidate& ranked) {
  const Candidate& candidate = ranked.candidate;
  return {ToText(request, candidate), Describe(request, candidate), EngineOf(request, candidate),
          ranked.cost.seconds, ranked.cost.device_bytes + 2 * request.bounce_bytes};
}

PlanSummary Summarize(const PlanRequest& request, const Profile& profile,
                      const RankedCandidate& chosen, const std::vector<RankedCandidate>& ranked,
                      const std::vector<std::string>& refused) {
  const Problem& problem = request.problem;
  PlanSummary summary;
  summary.problem = problem;
  summary.tiling = chosen.candidate.tiling;
  summary.cost = chosen.cost;
  summary.plan = ToText(request, chosen.candidate);
  summary.description = Describe(request, chosen.candidate);
  summary.engine = EngineOf(request, chosen.candidate);
  summary.machine = profile.of.machine;
  summary.floor_seconds = FloorOf(request, profile);
  summary.floor_compute_seconds = ComputeFloorOf(request, profile);
  summary.budget_bytes = request.budget;
  summary.estimated_bytes = chosen.cost.device_bytes + 2 * request.bounce_bytes;
  summary.booked_bytes = summary.estimated_bytes;
  summary.pinned = PinnedNames(problem, chosen.candidate);
  summary.prepare_seconds = PrepareSeconds(request, chosen.candidate, profile);
  summary.pin_seconds = PinSeconds(request, profile);
  for (const RankedCandidate& other : ranked) {
    if (other.candidate == chosen.candidate) continue;
    summary.runners_up.push_back(RunnerUpOf(request, other));
  }
  summary.refused = refused;
  summary.unmeasured = Assumptions(request, chosen.candidate, profile);
  summary.timeline = TimelineOf(request, chosen.candidate, profile, kStepsShown);
  return summary;
}

}  // namespace oocdnn
