#include "model/rows.hpp"

#include <algorithm>
#include <cstdlib>

#include "base/checked.hpp"

namespace oocdnn {

Operand ShapedAs(const Problem& problem, Operand operand) {
  const bool like_output = operand == Operand::kOld || operand == Operand::kResidual;
  return like_output ? problem.sum() : operand;
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
    // What the output held before lies where the output does.
    const Operand place = operand == Operand::kOld ? problem.output() : operand;
    const Dims& stride = problem.stride[Index(place)];
    const Dims dims = problem.DimsOf(operand);
    std::vector<int> order;
    for (int d = 0; d < 6; ++d) {
      if (dims[d] > 1) order.push_back(d);
      const bool far = std::abs(stride[d]) >= kFarBytes / SizeOf(problem.DTypeOf(operand));
      outside_[i][d] = far ? Step::kFar : Step::kNear;
    }
    std::sort(order.begin(), order.end(), [&](int a, int b) { return stride[a] < stride[b]; });
    int64_t next = 1;
    for (const int d : order) {
      if (stride[d] != next) break;
      next = Mul(next, dims[d]);
      dense_[i].push_back({d, kAxes});
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
  for (const Dimension& dimension : dense_[Index(operand)]) {
    steps[dimension.number] = Step::kInRow;
    if (dimension.axis < kAxes && counts[dimension.axis] > 1) break;
  }
  return steps;
}

void RowCount::Multiply(MemoryOrder::Step step, int64_t steps) {
  const int64_t some = std::min<int64_t>(steps, 1);
  all = Mul(all, step == MemoryOrder::Step::kInRow ? some : steps);
  far = Mul(far, step == MemoryOrder::Step::kFar ? steps : some);
}

}  // namespace oocdnn
