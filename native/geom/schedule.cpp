#include "geom/schedule.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

// The only dimension in which two boxes begin at different places, or -1.
int OnlyDifference(const Box& a, const Box& b) {
  int found = -1;
  for (int d = 0; d < 6; ++d) {
    if (a.origin[d] == b.origin[d]) continue;
    if (found >= 0) return -1;
    found = d;
  }
  return found;
}

// Whether each tile of the operand is finished before the next begins.
bool InOneGo(const Problem& problem, const Tiling& tiling, const LoopOrder& order,
             Operand operand) {
  bool reducing = false;
  for (const Axis axis : order) {
    if (tiling.Count(axis) <= 1) continue;
    const bool reduction = !Moves(problem, operand, axis);
    if (reducing && !reduction) return false;
    reducing = reducing || reduction;
  }
  return true;
}

// Whether the axis moves all that is written, but for tables, which nothing moves.
bool MovesAll(const Problem& problem, Axis axis) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool written = problem.Writes(operand) && !IsTable(operand);
    if (written && !Moves(problem, operand, axis)) return false;
  }
  return true;
}

}  // namespace

// The content of their boxes depends on coordinates alone.
bool Rolls(const Problem& problem, Operand operand) {
  if (problem.restores() && (operand == Operand::kZ || operand == Operand::kSaved)) return true;
  if (problem.direction != Direction::kBackwardData) return operand == Operand::kX;
  return operand == Operand::kY && problem.Has(operand);
}

bool IsLegal(const Problem& problem, const Tiling& tiling, const LoopOrder& order) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (problem.Writes(operand) && !InOneGo(problem, tiling, order, operand)) return false;
  }
  return true;
}

LoopOrder DefaultOrder(const Problem& problem) {
  LoopOrder order{Axis::kN, Axis::kG, Axis::kK, Axis::kC, Axis::kD, Axis::kH, Axis::kW};
  std::stable_partition(order.begin(), order.end(),
                        [&](Axis axis) { return MovesAll(problem, axis); });
  return order;
}

Schedule::Schedule(const Problem& problem, const Tiling& tiling, const LoopOrder& order,
                   const Depths& depths)
    : problem_(problem), tiling_(tiling), order_(order), steps_(tiling.Tiles()) {
  for (int i = 0; i < kOperands; ++i) {
    if (problem.Uses(static_cast<Operand>(i))) {
      rings_[i].slots.resize(static_cast<size_t>(std::max(depths[i], 1)));
    }
  }
}

bool Schedule::Next(Step* step) {
  if (next_ >= steps_) return false;
  step->number = next_;
  int64_t rest = next_;
  for (int i = kAxes - 1; i >= 0; --i) {
    const Axis axis = order_[i];
    const int64_t count = tiling_.Count(axis);
    step->index[Index(axis)] = rest % count;
    rest /= count;
  }
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    step->operand[i] = OperandStep{};
    if (!problem_.Uses(operand)) continue;
    Enter(operand, RegionOf(problem_, tiling_, operand, step->index), &step->operand[i]);
    const bool made = operand == problem_.sum() || problem_.Writes(operand);
    step->operand[i].leave = made && IsLast(operand, step->index);
  }
  ++next_;
  return true;
}

bool Schedule::IsLast(Operand operand, const TileIndex& index) const {
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (!Moves(problem_, operand, axis) && index[i] + 1 < tiling_.Count(axis)) return false;
  }
  return true;
}

void Schedule::Enter(Operand operand, const Box& box, OperandStep* out) {
  Ring& ring = rings_[Index(operand)];
  out->box = box;
  const auto held = std::find_if(ring.slots.begin(), ring.slots.end(), [&](const Ring::Slot& slot) {
    return slot.used >= 0 && slot.box == box;
  });
  if (held != ring.slots.end()) {
    out->slot = static_cast<int>(held - ring.slots.begin());
  } else {
    const auto oldest =
        std::min_element(ring.slots.begin(), ring.slots.end(),
                         [](const Ring::Slot& a, const Ring::Slot& b) { return a.used < b.used; });
    out->slot = static_cast<int>(oldest - ring.slots.begin());
    out->enter = true;
    if (Rolls(problem_, operand)) Roll(operand, ring.current, out);
    oldest->box = box;
  }
  ring.slots[static_cast<size_t>(out->slot)].used = next_;
  ring.current = out->slot;
}

void Schedule::Roll(Operand operand, int previous, OperandStep* out) const {
  if (previous < 0 || previous == out->slot) return;
  const Box& old = rings_[Index(operand)].slots[static_cast<size_t>(previous)].box;
  const int d = OnlyDifference(old, out->box);
  if (d < 3 || out->box.origin[d] < old.origin[d]) return;
  if (old.extent != out->box.extent) return;  // a short tile beside a usual one: layouts may differ
  const int64_t from_row = out->box.origin[d] - old.origin[d];
  if (from_row >= old.extent[d]) return;
  out->from_slot = previous;
  out->roll_axis = d;
  out->from_row = from_row;
  out->kept = old.extent[d] - from_row;
}

}  // namespace oocdnn
