#include "model/once.hpp"

#include "geom/parts.hpp"

namespace oocdnn {
namespace {

// What the candidate's engine refuses of gradients that come along, another one computes; a rate is
// missing where an engine refuses.
std::optional<double> SecondsOf(const PlanRequest& request, int engine, const Part& part,
                                const Profile& profile) {
  const Problem& problem = request.problem;
  const auto known = [&](const EngineInfo& info) {
    return profile.Once(
        Profile::PrepareKey(info.name, problem.dtype, problem.math, part.direction));
  };
  std::optional<double> seconds = known(request.engines[static_cast<size_t>(engine)]);
  if (part.sum == problem.sum()) return seconds;
  for (size_t i = 0; i < request.engines.size() && !seconds; ++i) {
    seconds = known(request.engines[i]);
  }
  return seconds;
}

}  // namespace

std::optional<double> PrepareSeconds(const PlanRequest& request, const Candidate& candidate,
                                     const Profile& profile) {
  double tile = 0.0;
  for (const Part& part : PartsOf(request.problem)) {
    const auto seconds = SecondsOf(request, candidate.engine, part, profile);
    if (!seconds) return std::nullopt;
    tile += *seconds;
  }
  return candidate.tiling.tapered() ? 2 * tile : tile;
}

std::optional<double> PinSeconds(const PlanRequest& request, const Profile& profile) {
  const auto rate = profile.Once(Profile::PinKey());
  if (!rate) return std::nullopt;
  double bytes = 0.0;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    // What the output held before is where the output is.
    const bool own = request.problem.Has(operand) && operand != Operand::kOld;
    if (!own || request.home[i] != Home::kPageable) continue;
    bytes += static_cast<double>(request.problem.BytesOf(operand));
  }
  return bytes / *rate;
}

}  // namespace oocdnn
