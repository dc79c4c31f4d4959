#include "model/price/traffic.hpp"

#include "base/checked.hpp"

namespace oocdnn {
namespace {

// The first of the dimensions of a filter that no axis moves: its taps. Of a table it is the first.
constexpr int kTaps = 3;

}  // namespace

OperandTraffic TrafficOf(const Problem& problem, const Cuts& cuts, const LoopOrder& order,
                         const MemoryOrder::Steps& steps, Operand operand, int depth) {
  OperandTraffic traffic{1, 1, {1, 1, steps.broken}, 0};
  int64_t boxes = 1;      // distinct ones inside the loops seen so far
  int64_t across = 1;     // elements of all tiles across the rolled axis
  int64_t sequences = 1;  // times that the same tiles are run through
  const CutRows* rolled = nullptr;
  const AxisSet moving = MovedBy(problem, operand);
  for (int i = kAxes - 1; i >= 0; --i) {
    const AxisCut& cut = *cuts[Index(order[i])];
    if ((moving & BitOf(Index(cut.axis))) == 0) {
      if (cut.count <= 1) continue;
      traffic.varies = traffic.varies || (boxes > 1 && boxes <= depth);
      if (boxes <= depth) continue;
      for (int64_t* product : {&traffic.transfers, &traffic.elements, &traffic.rows.all,
                               &traffic.rows.far, &sequences}) {
        *product = Mul(*product, cut.count);
      }
      continue;
    }
    const CutRows& rows = cut.rows[Index(operand)];
    const bool innermost = boxes == 1 && cut.count > 1;
    const bool rolls = innermost && depth >= 2 && IsSpatial(cut.axis) && Rolls(problem, operand);
    const StepCount& fetched = rolls ? rows.rolled : rows.valid;
    if (rolls) rolled = &rows;
    if (!rolls) across = Mul(across, rows.extents);
    traffic.transfers = Mul(traffic.transfers, cut.count);
    traffic.elements = Mul(traffic.elements, fetched.all);
    traffic.rows.Multiply(steps[rows.dimension], fetched);
    boxes = Mul(boxes, cut.count);
  }
  if (rolled != nullptr) {
    traffic.moved = Mul(Mul(across, rolled->kept), sequences);
    traffic.varies = true;
  }
  if (ShapedAs(problem, operand) != Operand::kW && !IsTable(operand)) return traffic;
  const Dims dims = problem.DimsOf(operand);
  for (int d = IsTable(operand) ? 0 : kTaps; d < 6; ++d) {
    traffic.elements = Mul(traffic.elements, dims[d]);
    traffic.rows.Multiply(steps[d], OneTile(dims[d], steps.piece));
  }
  return traffic;
}

int64_t BoxesOf(const Problem& problem, const AxisArray& counts, Operand operand) {
  int64_t boxes = 1;
  const AxisSet moving = MovedBy(problem, operand);
  for (int i = 0; i < kAxes; ++i) {
    if ((moving & BitOf(i)) != 0) boxes = Mul(boxes, counts[i]);
  }
  return boxes;
}

}  // namespace oocdnn
