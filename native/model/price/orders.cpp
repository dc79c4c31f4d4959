#include "model/price/orders.hpp"

#include <algorithm>

#include "geom/sum_blocks.hpp"
#include "model/price/cuts.hpp"

namespace oocdnn {
namespace {

constexpr Axis kSums[] = {Axis::kN, Axis::kD, Axis::kH, Axis::kW};

bool SumsOverPixels(const Problem& problem) {
  return problem.direction == Direction::kBackwardFilter ||
         problem.direction == Direction::kBackwardBias;
}

// D, H, W with `innermost` moved to the end.
std::array<Axis, 3> SpatialOrder(Axis innermost) {
  std::array<Axis, 3> order{Axis::kD, Axis::kH, Axis::kW};
  std::stable_partition(order.begin(), order.end(), [&](Axis axis) { return axis != innermost; });
  return order;
}

std::vector<Axis> InnermostChoices(const AxisArray& counts) {
  std::vector<Axis> choices;
  for (const Axis axis : {Axis::kW, Axis::kH, Axis::kD}) {
    if (counts[Index(axis)] > 1) choices.push_back(axis);
  }
  if (choices.empty()) choices.push_back(Axis::kW);
  return choices;
}

}  // namespace

Axis SummedChannels(const Problem& problem) {
  switch (problem.direction) {
    case Direction::kForward: return Axis::kC;
    case Direction::kBackwardData: return Axis::kK;
    default: return Axis::kN;
  }
}

std::vector<LoopOrder> UsualOrders(const Problem& problem, const AxisArray& counts,
                                   bool reproducible) {
  std::vector<LoopOrder> orders;
  const auto pieces = [&](Axis axis) { return counts[Index(axis)]; };
  const bool pixels_cut =
      pieces(Axis::kN) > 1 || pieces(Axis::kD) > 1 || pieces(Axis::kH) > 1 || pieces(Axis::kW) > 1;
  const bool sums_over_pixels = SumsOverPixels(problem);
  for (const Axis innermost : InnermostChoices(counts)) {
    const auto s = SpatialOrder(reproducible && sums_over_pixels ? Axis::kW : innermost);
    if (sums_over_pixels) {
      orders.push_back({Axis::kG, Axis::kK, Axis::kC, Axis::kN, s[0], s[1], s[2]});
      if (pieces(Axis::kK) > 1 && pieces(Axis::kC) > 1) {
        orders.push_back({Axis::kG, Axis::kC, Axis::kK, Axis::kN, s[0], s[1], s[2]});
      }
    } else {
      const Axis summed = SummedChannels(problem);
      const Axis made = summed == Axis::kC ? Axis::kK : Axis::kC;
      orders.push_back({Axis::kG, made, Axis::kN, s[0], s[1], s[2], summed});
      if (pieces(made) > 1 && pixels_cut) {
        orders.push_back({Axis::kG, Axis::kN, s[0], s[1], s[2], made, summed});
      }
    }
    if (reproducible && sums_over_pixels) break;
  }
  return orders;
}

std::vector<LoopOrder> AllOrders(const Problem& problem, const AxisArray& counts,
                                 bool reproducible) {
  const auto cut = [&](Axis axis) { return counts[Index(axis)] > 1; };
  // Of sums that come along all but the groups are reductions.
  const bool along = problem.also.any();
  const auto makes = [&](Axis axis) {
    return along ? axis == Axis::kG : !IsReduction(problem, axis);
  };
  LoopOrder order{Axis::kN, Axis::kG, Axis::kK, Axis::kC, Axis::kD, Axis::kH, Axis::kW};
  const auto end = std::stable_partition(order.begin(), order.end(), cut);
  std::vector<LoopOrder> orders;
  do {
    const auto sums = std::find_if_not(order.begin(), end, makes);
    const bool legal = std::none_of(sums, end, makes);
    if (legal && (!reproducible || std::is_sorted(sums, end))) orders.push_back(order);
  } while (std::next_permutation(order.begin(), end));
  return orders;
}

bool KeepsSummationOrder(const Problem& problem, const AxisArray& lengths,
                         const AxisArray& counts) {
  for (int i = 0; i < kAxes; ++i) {
    if (counts[i] > 1 && lengths[i] % SumUnit(problem, static_cast<Axis>(i)) != 0) return false;
  }
  if (!SumsOverPixels(problem)) return true;
  bool single_rows = true;
  for (const Axis axis : kSums) {
    if (counts[Index(axis)] > 1 && !single_rows) return false;
    single_rows = single_rows && lengths[Index(axis)] <= 1;
  }
  return true;
}

bool KeepsSummationOrder(const Problem& problem, const Tiling& tiling) {
  const AxisArray counts = CountsOf(tiling);
  AxisArray ends = tiling.length;
  if (tiling.tapered()) ends[Index(tiling.taper.axis)] = tiling.taper.length;
  return KeepsSummationOrder(problem, tiling.length, counts) &&
         KeepsSummationOrder(problem, ends, counts);
}

int64_t SumUnit(const Problem& problem, Axis axis) {
  const ConvShape& shape = problem.shape;
  switch (problem.direction) {
    case Direction::kForward:
    case Direction::kBackwardData:
      if (axis != SummedChannels(problem) || IsOneBlock(problem.direction, shape)) return 1;
      return std::min(GroupChannelsOf(shape), SummedChannelsOf(problem.direction, shape));
    case Direction::kBackwardFilter: {
      // Sums in float64 have no blocks.
      const auto found = std::find(std::begin(kSums), std::end(kSums), axis);
      if (found == std::end(kSums) || problem.dtype == DType::kFloat64) return 1;
      return PixelBlockOf(shape)[static_cast<size_t>(found - std::begin(kSums))];
    }
    case Direction::kBackwardBias: break;
  }
  return 1;
}

}  // namespace oocdnn
