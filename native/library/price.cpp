#include "library/price.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

// Slots of a ring beyond which no plan goes.
constexpr int kMostSlots = 64;

Status CheckNumbers(const Split& split, const AxisArray& extents) {
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (split.pieces[i] < 1 || split.pieces[i] > extents[i]) {
      return Error(Code::kInvalidProblem, "%s of %lld cannot be cut into %lld pieces", Name(axis),
                   static_cast<long long>(extents[i]), static_cast<long long>(split.pieces[i]));
    }
    if (std::count(split.order.begin(), split.order.end(), axis) != 1) {
      return Error(Code::kInvalidProblem, "the loop order must name %s once", Name(axis));
    }
  }
  if (split.slots < 1 || split.slots > kMostSlots) {
    return Error(Code::kInvalidProblem, "%d slots: write 1 to %d", split.slots, kMostSlots);
  }
  return {};
}

Candidate CandidateOf(const PlanRequest& request, const Split& split, int engine) {
  AxisArray length = ExtentsOf(request.problem);
  for (int i = 0; i < kAxes; ++i) length[i] = CeilDiv(length[i], split.pieces[i]);
  const bool as_data = !request.engines[static_cast<size_t>(engine)].symmetric_padding;
  Candidate candidate;
  candidate.tiling = MakeTiling(request.problem, length, as_data);
  candidate.order = split.order;
  candidate.depths.fill(split.slots);
  candidate.engine = engine;
  return candidate;
}

}  // namespace

Result<PricedPlan> PriceSplit(const PlanRequest& request, const Split& split,
                              const Profile& profile) {
  OOC_TRY(CheckNumbers(split, ExtentsOf(request.problem)));
  std::optional<PricedPlan> best;
  for (size_t i = 0; i < request.engines.size(); ++i) {
    const std::string& engine = request.engines[i].name;
    if (engine.empty()) continue;
    const Candidate candidate = CandidateOf(request, split, static_cast<int>(i));
    if (!IsLegal(request.problem, candidate.tiling, candidate.order)) {
      return Error(Code::kInvalidProblem,
                   "the loop order has a summed axis outside of one that the output has: put those "
                   "that are cut and summed over innermost");
    }
    const Cost cost = PriceOf(request, candidate, profile);
    if (best && cost.seconds >= best->cost.seconds) continue;
    best = PricedPlan{candidate, engine, Describe(request, candidate), cost};
  }
  if (!best) return Error(Code::kUnsupported, "there is no engine");
  return std::move(*best);
}

}  // namespace oocdnn
