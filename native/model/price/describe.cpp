#include "model/price/describe.hpp"

#include <algorithm>

#include "base/config.hpp"
#include "model/price/footprint.hpp"

namespace oocdnn {
namespace {

std::string OrderText(const Candidate& candidate) {
  std::string text;
  for (const Axis axis : candidate.order) {
    if (candidate.tiling.Count(axis) > 1) text += std::string(" ") + Name(axis);
  }
  return text;
}

// "x 2 slots of 1.2 MiB", "w resident 2.3 MiB", "y in place": resident where one slot serves every
// step, in place where there is none.
std::string SlotText(const PlanRequest& request, const Candidate& candidate, Operand operand) {
  const Problem& problem = request.problem;
  const char* name = Name(operand, problem.direction);
  if (request.tiers[Index(operand)] == Tier::kTile) return Format("%s in place", name);
  const Footprint footprint(problem, request.engines[static_cast<size_t>(candidate.engine)]);
  const std::string bytes = BytesText(footprint.SlotBytes(
      TileShape(problem, candidate.tiling), operand, CutsReduction(problem, candidate.tiling)));
  bool moves = false;
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    moves = moves || (candidate.tiling.Count(axis) > 1 && Moves(problem, operand, axis));
  }
  if (!moves) return Format("%s resident %s", name, bytes.c_str());
  const int slots = std::max(candidate.depths[Index(operand)], 1);
  return Format("%s %d slot%s of %s", name, slots, slots == 1 ? "" : "s", bytes.c_str());
}

}  // namespace

std::string TileText(const Tiling& tiling) {
  std::string text;
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (tiling.Count(axis) <= 1) continue;
    if (!text.empty()) text += ", ";
    text += Format("%s %lld in %lld of %lld", Name(axis), static_cast<long long>(tiling.extent[i]),
                   static_cast<long long>(tiling.Count(axis)),
                   static_cast<long long>(tiling.length[i]));
    if (!tiling.tapered() || tiling.taper.axis != axis) continue;
    text += Format(" (%lld at the ends)", static_cast<long long>(tiling.taper.length));
  }
  return text.empty() ? "whole" : text;
}

std::string Describe(const PlanRequest& request, const Candidate& candidate) {
  std::string text = request.engines[static_cast<size_t>(candidate.engine)].name + ": " +
                     TileText(candidate.tiling);
  if (const std::string order = OrderText(candidate); !order.empty()) text += "; order" + order;
  const char* separator = "; ";
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!request.problem.Uses(operand)) continue;
    text += separator + SlotText(request, candidate, operand);
    if (candidate.pinned[i]) text += " pinned for the call";
    separator = ", ";
  }
  return text + "; " + BytesText(EstimateBytes(request, candidate)) + " in all";
}

}  // namespace oocdnn
