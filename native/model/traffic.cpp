#include "model/traffic.hpp"

#include "base/checked.hpp"

namespace oocdnn {
namespace {

// Elements of the dimensions that no axis moves: a filter's taps.
int64_t FixedElements(const Problem& problem, Operand operand) {
  const bool like_output = operand == Operand::kOld || operand == Operand::kResidual;
  if ((like_output ? problem.output() : operand) != Operand::kW) return 1;
  const Spatial& taps = problem.shape.filter;
  return Mul(Mul(taps[0], taps[1]), taps[2]);
}

}  // namespace

OperandTraffic TrafficOf(const Problem& problem, const Cuts& cuts, const LoopOrder& order,
                         Operand operand, int depth) {
  const int64_t fixed = FixedElements(problem, operand);
  OperandTraffic traffic{1, fixed, 0};
  int64_t boxes = 1;       // distinct ones inside the loops seen so far
  int64_t tile = fixed;    // elements of a tile across the rolled axis
  int64_t sequences = 1;   // times that the innermost moving axis is run through
  const CutRows* rolled = nullptr;
  for (int i = kAxes - 1; i >= 0; --i) {
    const AxisCut& cut = *cuts[Index(order[i])];
    if (!Moves(problem, operand, cut.axis)) {
      if (cut.count <= 1 || boxes <= depth) continue;
      traffic.transfers = Mul(traffic.transfers, cut.count);
      traffic.elements = Mul(traffic.elements, cut.count);
      sequences = Mul(sequences, cut.count);
      continue;
    }
    const CutRows& rows = cut.rows[Index(operand)];
    const bool innermost = boxes == 1 && cut.count > 1;
    const bool rolls = innermost && depth >= 2 && IsSpatial(cut.axis) &&
                       operand == RollingOperand(problem);
    if (rolls) rolled = &rows;
    if (!rolls) tile = Mul(tile, rows.extent);
    if (!innermost) sequences = Mul(sequences, cut.count);
    traffic.transfers = Mul(traffic.transfers, cut.count);
    traffic.elements = Mul(traffic.elements, rolls ? rows.rolled : rows.valid);
    boxes = Mul(boxes, cut.count);
  }
  if (rolled != nullptr) traffic.moved = Mul(Mul(tile, rolled->kept), sequences);
  return traffic;
}

int64_t BoxesOf(const Problem& problem, const Cuts& cuts, Operand operand) {
  int64_t boxes = 1;
  for (const AxisCut* cut : cuts) {
    if (Moves(problem, operand, cut->axis)) boxes = Mul(boxes, cut->count);
  }
  return boxes;
}

}  // namespace oocdnn
