#include "model/price/setup_cost.hpp"

#include "base/checked.hpp"
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

std::vector<size_t> PageableOf(const PlanRequest& request) {
  std::vector<size_t> operands;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool own = request.problem.Has(operand) && operand != Operand::kOld;
    if (own && request.tiers[i] == Tier::kPageable) operands.push_back(static_cast<size_t>(i));
  }
  return operands;
}

int64_t PageableBytes(const PlanRequest& request, const Pinned& which) {
  int64_t bytes = 0;
  for (const size_t i : PageableOf(request)) {
    if (which[i]) bytes = Add(bytes, request.problem.BytesOf(static_cast<Operand>(i)));
  }
  return bytes;
}

std::optional<double> PinSeconds(const PlanRequest& request, const Pinned& which,
                                 const Profile& profile) {
  const auto rate = profile.Once(Profile::PinKey());
  if (!rate) return std::nullopt;
  return static_cast<double>(PageableBytes(request, which)) / *rate;
}

std::optional<double> PinSeconds(const PlanRequest& request, const Profile& profile) {
  Pinned all{};
  all.fill(true);
  return PinSeconds(request, all, profile);
}

}  // namespace oocdnn
