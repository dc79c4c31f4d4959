#include "testing/random_plans.hpp"

#include <algorithm>

namespace oocdnn::testing {
namespace {

// Sums over several axes keep the order of one piece only where every reduction axis outside a cut
// one is taken one element at a time. `invariant` speaks of N, K, D, H and W alone; that a split of
// C (of K in backward data) keeps the bits too is a promise of the direct engine.
void KeepOrderOfSums(const Problem& problem, bool direct, AxisArray* length) {
  const AxisArray extent = ExtentsOf(problem);
  const Axis channels = problem.direction == Direction::kForward ? Axis::kC : Axis::kK;
  if (!direct && IsReduction(problem, channels)) {
    (*length)[Index(channels)] = extent[Index(channels)];
  }
  bool cut_inside = false;
  for (int i = kAxes - 1; i >= 0; --i) {
    if (!IsReduction(problem, static_cast<Axis>(i))) continue;
    if (cut_inside) (*length)[i] = 1;
    cut_inside = cut_inside || (*length)[i] < extent[i];
  }
}

LoopOrder RandomOrder(const Problem& problem, Dice* dice) {
  LoopOrder order = DefaultOrder(problem);
  const auto reductions = std::find_if(order.begin(), order.end(),
                                       [&](Axis axis) { return IsReduction(problem, axis); });
  for (auto i = order.begin(); i != reductions; ++i) {
    std::swap(*i, *(i + dice->Between(0, reductions - i - 1)));
  }
  return order;
}

}  // namespace

Problem RandomProblem(Dice* dice) {
  Problem problem;
  problem.direction = static_cast<Direction>(dice->Between(0, kDirections - 1));
  problem.rank = static_cast<int>(dice->Between(1, 3));
  ConvShape& shape = problem.shape;
  shape.n = dice->Between(1, 3);
  shape.g = dice->Between(1, 2);
  shape.k = dice->Between(1, 5);
  shape.c = dice->Between(1, 5);
  for (int s = 3 - problem.rank; s < 3; ++s) {
    shape.filter[s] = dice->Between(1, 3);
    shape.stride[s] = dice->Between(1, 2);
    shape.dilation[s] = dice->Between(1, 2);
    shape.pad_before[s] = dice->Between(0, 2);
    shape.pad_after[s] = dice->Between(0, 2);
    const int64_t least =
        std::max<int64_t>(1, shape.Reach(s) - shape.pad_before[s] - shape.pad_after[s]);
    shape.in[s] = dice->Between(least, std::max<int64_t>(least, 9));
    shape.out[s] = OutputExtent(shape.in[s], shape.pad_before[s], shape.pad_after[s],
                                shape.filter[s], shape.stride[s], shape.dilation[s]);
  }
  for (int i = 0; i < kOperands; ++i) {
    problem.stride[i] = DenseStrides(problem.DimsOf(static_cast<Operand>(i)));
  }
  return problem;
}

Candidate RandomCandidate(const Problem& problem, const EngineInfo& engine, Dice* dice) {
  Candidate candidate;
  AxisArray length = ExtentsOf(problem);
  for (int64_t& axis : length) {
    if (dice->Between(0, 2) != 0) axis = dice->Between(1, std::max<int64_t>(axis, 1));
  }
  KeepOrderOfSums(problem, engine.name == "direct", &length);
  candidate.tiling = MakeTiling(problem, length, !engine.symmetric_padding);
  const auto axis = static_cast<Axis>(dice->Between(0, kAxes - 1));
  const int64_t usual = candidate.tiling.length[Index(axis)];
  candidate.tiling = Tapered(problem, candidate.tiling, {axis, dice->Between(0, usual)});
  candidate.order = RandomOrder(problem, dice);
  if (!IsLegal(problem, candidate.tiling, candidate.order)) candidate.order = DefaultOrder(problem);
  for (int i = 0; i < kOperands; ++i) {
    candidate.depths[i] =
        problem.Uses(static_cast<Operand>(i)) ? static_cast<int>(dice->Between(1, 3)) : 0;
  }
  return candidate;
}

Candidate OneTile(const Problem& problem, const EngineInfo& engine) {
  Candidate whole;
  whole.tiling = WholeTiling(problem, !engine.symmetric_padding);
  whole.order = DefaultOrder(problem);
  for (int i = 0; i < kOperands; ++i) {
    whole.depths[i] = problem.Uses(static_cast<Operand>(i)) ? 1 : 0;
  }
  return whole;
}

Status Runner::Run(const Problem& problem, const Candidate& candidate,
                   const OperandViews& tensors) {
  PlanRequest request;
  request.problem = problem;
  request.budget = int64_t{1} << 30;
  request.engines = device.engines();
  Result<Booking> booking = Book(device, request, candidate, request.budget);
  if (candidate.tiling.tapered() && !booking.ok()) {
    Candidate even = candidate;
    even.tiling.taper = {};
    booking = Book(device, request, even, request.budget);
  }
  const std::string text = ToString(problem) + " " + Describe(request, candidate);
  if (!booking.ok()) return std::move(booking).status().With(text);
  OOC_TRY(arena.Reserve(booking.value().bytes));
  RunStats stats;
  OOC_TRY(
      loop.Run(booking.value(), std::span(&tensors, 1), arena, slabs, nullptr, &stats).With(text));
  steps += stats.tiles;
  return {};
}

}  // namespace oocdnn::testing
