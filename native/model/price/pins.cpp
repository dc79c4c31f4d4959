#include "model/price/pins.hpp"

#include <algorithm>

#include "model/price/cost.hpp"
#include "model/price/rank.hpp"
#include "model/price/setup_cost.hpp"

namespace oocdnn {
namespace {

bool MayPin(const PlanRequest& request, const Profile& profile) {
  return request.pin_bytes > 0 && profile.Once(Profile::PinKey()).has_value();
}

// The bits of `choice` say which.
Pinned PinnedBy(const std::vector<size_t>& operands, unsigned choice) {
  Pinned pinned{};
  for (size_t i = 0; i < operands.size(); ++i) pinned[operands[i]] = (choice >> i & 1U) != 0;
  return pinned;
}

// No choice ends before all is pinned that may be, as if that took no time, and what it takes to
// pin: most choices need no other price.
void ChoosePins(const PlanRequest& request, const Profile& profile,
                const std::vector<size_t>& operands, RankedCandidate* ranked) {
  Candidate candidate = ranked->candidate;
  const unsigned choices = 1U << operands.size();
  candidate.pinned = PinnedBy(operands, choices - 1);
  const double least = PriceOf(WithPinned(request, candidate), candidate, profile).seconds;
  RankedCandidate best = *ranked;
  for (unsigned choice = 1; choice < choices; ++choice) {
    candidate.pinned = PinnedBy(operands, choice);
    const double pinning = PinSeconds(request, candidate.pinned, profile).value_or(kNever);
    if (PageableBytes(request, candidate.pinned) > request.pin_bytes) continue;
    if (least + pinning >= best.cost.seconds) continue;
    const Cost cost = PriceOf(request, candidate, profile);
    if (cost.seconds < best.cost.seconds) best = {candidate, cost};
  }
  if (best.cost.seconds * kPinGain < ranked->cost.seconds) *ranked = best;
}

}  // namespace

PlanRequest WithPinned(PlanRequest request, const Candidate& candidate) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const Operand where = operand == Operand::kOld ? request.problem.output() : operand;
    if (!candidate.pinned[static_cast<size_t>(Index(where))]) continue;
    if (request.tiers[i] == Tier::kPageable) request.tiers[i] = Tier::kPinned;
  }
  return request;
}

std::vector<Pinned> WorthPinning(const PlanRequest& request, const Profile& profile,
                                 const RankedCandidate& best) {
  std::vector<Pinned> worth;
  if (!MayPin(request, profile)) return worth;
  const std::vector<size_t> operands = PageableOf(request);
  Candidate all = best.candidate;
  all.pinned = PinnedBy(operands, (1U << operands.size()) - 1);
  const double floor = FloorOf(WithPinned(request, all), profile);
  for (size_t i = 0; i < operands.size(); ++i) {
    Candidate one = best.candidate;
    one.pinned = PinnedBy(operands, 1U << i);
    const double pinning = PinSeconds(request, one.pinned, profile).value_or(kNever);
    if (PageableBytes(request, one.pinned) > request.pin_bytes) continue;
    if ((floor + pinning) * kPinGain >= best.cost.seconds) continue;
    const double then = PriceOf(WithPinned(request, one), one, profile).seconds;
    if (then * kPinGain < best.cost.seconds) worth.push_back(one.pinned);
  }
  return worth;
}

void ChoosePins(const PlanRequest& request, const Profile& profile,
                std::vector<RankedCandidate>* ranked) {
  if (!MayPin(request, profile) || ranked->empty()) return;
  const std::vector<size_t> operands = PageableOf(request);
  if (operands.empty()) return;
  for (RankedCandidate& one : *ranked) ChoosePins(request, profile, operands, &one);
  const auto fastest = std::min_element(
      ranked->begin(), ranked->end(),
      [](const auto& a, const auto& b) { return a.cost.seconds < b.cost.seconds; });
  const bool pins = fastest->candidate.pinned != Pinned{};
  if (pins && fastest->cost.seconds * kPinGain < ranked->front().cost.seconds) {
    std::rotate(ranked->begin(), fastest, fastest + 1);
  }
}

}  // namespace oocdnn
