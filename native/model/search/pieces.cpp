#include "model/search/pieces.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kChannels = 16;  // in multiples of which cut channels come (see UsualLengths)

// Whether rows that end along the axis, which nothing but this axis cuts, lie far apart.
bool EndsFarApart(const Problem& problem, const MemoryOrder::Steps& steps, Operand operand,
                  Axis axis) {
  if (steps[DimensionOf(problem, operand, axis)] != MemoryOrder::Step::kRowEnd) return false;
  const Dims dims = problem.DimsOf(operand);
  for (int d = 0; d < 6; ++d) {
    if (dims[d] > 1 && steps[d] == MemoryOrder::Step::kFar) return true;
  }
  return false;
}

// The least length of a tile that moves the operand by a multiple of `steps`.
int64_t LengthOf(const Problem& problem, Operand operand, Axis axis, int64_t steps) {
  if (axis == Axis::kK || axis == Axis::kC) return std::lcm(steps, kChannels);
  if (!IsSpatial(axis)) return steps;
  const int s = SpatialIndex(axis);
  const int64_t stride = problem.shape.stride[s], windows = problem.pool.stride[s];
  const bool backward = problem.direction == Direction::kBackwardData;
  if (operand == Operand::kX && !backward) {
    const bool pools = problem.direction == Direction::kForward;
    return steps / std::gcd(steps, pools ? Mul(stride, windows) : stride);
  }
  int64_t rows = operand != Operand::kX && backward ? stride : 1;  // of a step
  if (operand == Operand::kZ && problem.restores()) rows = Mul(rows, windows);
  return Mul(steps, rows);
}

}  // namespace

std::vector<int64_t> PieceLengths(const PlanRequest& request, const MemoryOrder& memory,
                                  Axis axis) {
  const Problem& problem = request.problem;
  AxisArray counts;
  counts.fill(1);
  counts[Index(axis)] = 2;
  std::vector<int64_t> lengths;
  for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY, Operand::kZ}) {
    if (!problem.Has(operand) || !CrossesWire(request.tiers[Index(operand)])) continue;
    if (!Moves(problem, operand, axis)) continue;
    const MemoryOrder::Steps steps = memory.StepsOf(operand, counts);
    if (steps.piece == 1 || !EndsFarApart(problem, steps, operand, axis)) continue;
    const int64_t length = LengthOf(problem, operand, axis, steps.piece);
    if (std::find(lengths.begin(), lengths.end(), length) == lengths.end()) {
      lengths.push_back(length);
    }
  }
  return lengths;
}

}  // namespace oocdnn
