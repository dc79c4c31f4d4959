#include "model/price/rows.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

constexpr int kColumns = 5;  // the dimension

// What the output held before lies where the output does.
const Dims& StrideOf(const Problem& problem, Operand operand) {
  return problem.stride[Index(operand == Operand::kOld ? problem.output() : operand)];
}

}  // namespace

Operand ShapedAs(const Problem& problem, Operand operand) {
  const bool like_output = operand == Operand::kOld || operand == Operand::kResidual;
  if (like_output) return problem.sum();
  if (operand == Operand::kInput) return Operand::kX;
  return operand == Operand::kDw ? Operand::kW : operand;
}

int DimensionOf(const Problem& problem, Operand operand, Axis axis) {
  if (IsSpatial(axis)) return 3 + SpatialIndex(axis);
  if (ShapedAs(problem, operand) == Operand::kW) return Index(axis) - Index(Axis::kG);
  return axis == Axis::kN ? 0 : axis == Axis::kG ? 1 : 2;
}

MemoryOrder::MemoryOrder(const Problem& problem) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Has(operand)) continue;
    const Dims& stride = StrideOf(problem, operand);
    const Dims dims = problem.DimsOf(operand);
    std::vector<int> order;
    for (int d = 0; d < 6; ++d) {
      if (dims[d] > 1) order.push_back(d);
      const bool far = std::abs(stride[d]) >= kFarBytes / SizeOf(problem.DTypeOf(operand));
      outside_[i].along[d] = far ? Step::kFar : Step::kNear;
    }
    std::sort(order.begin(), order.end(), [&](int a, int b) { return stride[a] < stride[b]; });
    int64_t next = 1;
    for (const int d : order) {
      if (stride[d] != next) break;
      next = Mul(next, dims[d]);
      dense_[i].push_back({d, kAxes, PieceOf(problem, operand, d)});
    }
    for (int a = 0; a < kAxes; ++a) {
      const auto axis = static_cast<Axis>(a);
      if (!Moves(problem, operand, axis)) continue;
      for (Dimension& dimension : dense_[i]) {
        if (dimension.number == DimensionOf(problem, operand, axis)) dimension.axis = a;
      }
    }
  }
}

MemoryOrder::Steps MemoryOrder::StepsOf(Operand operand, const AxisArray& counts) const {
  Steps steps = outside_[Index(operand)];
  const Dimension* last = nullptr;
  for (const Dimension& dimension : dense_[Index(operand)]) {
    steps.along[dimension.number] = Step::kInRow;
    last = &dimension;
    if (dimension.axis < kAxes && counts[dimension.axis] > 1) break;
  }
  if (last == nullptr) return steps;
  steps.along[last->number] = Step::kRowEnd;
  steps.piece = last->piece;
  const Dimension& fastest = dense_[Index(operand)].front();
  steps.broken = fastest.number == kColumns && fastest.axis < kAxes && counts[fastest.axis] > 1;
  return steps;
}

// A dimension that no row runs along may have any stride.
int64_t PieceOf(const Problem& problem, Operand operand, int dimension) {
  const int64_t bytes =
      Mul(StrideOf(problem, operand)[dimension], SizeOf(problem.DTypeOf(operand)));
  return MemoryOrder::kFarBytes / std::gcd(MemoryOrder::kFarBytes, bytes);
}

}  // namespace oocdnn
