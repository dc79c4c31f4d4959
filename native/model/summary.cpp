#include "model/summary.hpp"

#include "model/cost.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kStepsShown = 100;

const std::string& EngineOf(const PlanRequest& request, const Candidate& candidate) {
  return request.engines[static_cast<size_t>(candidate.engine)].name;
}

}  // namespace

PlanSummary Summarize(const PlanRequest& request, const Profile& profile,
                      const RankedCandidate& chosen, const std::vector<RankedCandidate>& ranked,
                      const std::vector<std::string>& refused) {
  const Problem& problem = request.problem;
  PlanSummary summary;
  summary.problem = problem;
  summary.tiling = chosen.candidate.tiling;
  summary.cost = chosen.cost;
  summary.description = Describe(request, chosen.candidate);
  summary.engine = EngineOf(request, chosen.candidate);
  summary.machine = profile.machine;
  summary.floor_seconds = FloorOf(request, profile);
  summary.budget_bytes = request.budget;
  summary.booked_bytes = chosen.cost.device_bytes + 2 * request.bounce_bytes;
  for (const RankedCandidate& other : ranked) {
    if (other.candidate == chosen.candidate) continue;
    summary.runners_up.push_back({Describe(request, other.candidate),
                                  EngineOf(request, other.candidate), other.cost.seconds,
                                  other.cost.device_bytes});
  }
  summary.refused = refused;
  summary.unmeasured =
      profile.Unmeasured(summary.engine, problem.dtype, problem.math, problem.direction);
  summary.timeline = TimelineOf(request, chosen.candidate, profile, kStepsShown);
  return summary;
}

}  // namespace oocdnn
