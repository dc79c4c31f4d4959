#include "geom/schedule.hpp"

#include <algorithm>

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

// The box is where it was.
void Stay(OperandStep* step) {
  step->enter = false;
  step->from_slot = -1;
  step->roll_axis = 0;
  step->kept = step->from_row = 0;
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
    : tiling_(tiling), order_(order), steps_(tiling.Tiles()) {
  for (int a = 0; a < kAxes; ++a) {
    counts_[a] = tiling.Count(static_cast<Axis>(a));
    if (counts_[a] <= 1) last_ |= BitOf(a);
  }
  const ConvShape usual = TileShape(problem, tiling_);
  const ConvShape ends = tiling_.tapered() ? TileShape(problem, tiling_, true) : ConvShape{};
  rings_.reserve(kOperands);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Uses(operand)) continue;
    Ring ring{operand, OperandTiles(problem, tiling_, operand, usual, ends),
              Rolls(problem, operand), operand == problem.sum() || problem.Writes(operand)};
    for (int a = 0; a < kAxes; ++a) {
      const bool moves = Moves(problem, operand, static_cast<Axis>(a));
      if (moves) ring.moving |= BitOf(a);
      if (!moves && counts_[a] > 1) ring.summing |= BitOf(a);
    }
    ring.slots.resize(static_cast<size_t>(std::max(depths[i], 1)));
    rings_.push_back(std::move(ring));
  }
}

const Step* Schedule::Next() {
  if (next_ >= steps_) return nullptr;
  step_.number = next_;
  const AxisSet moved = next_ > 0 ? Advance() : 0;
  for (Ring& ring : rings_) {
    OperandStep& operand = step_.operand[Index(ring.operand)];
    if (next_ == 0) operand.box = ring.tiles.BoxAt(step_.index);
    if (next_ == 0 || (moved & ring.moving) != 0) {
      MoveBox(ring, moved, &operand.box);
      Enter(&ring, &operand);
    } else {
      Stay(&operand);
    }
    operand.leave = ring.made && (ring.summing & ~last_) == 0;
    ring.slots[static_cast<size_t>(operand.slot)].used = next_;
  }
  ++next_;
  return &step_;
}

AxisSet Schedule::Advance() {
  AxisSet moved = 0;
  for (int i = kAxes - 1; i >= 0; --i) {
    const int axis = Index(order_[i]);
    if (counts_[axis] <= 1) continue;
    int64_t& number = step_.index[axis];
    number = number + 1 < counts_[axis] ? number + 1 : 0;
    moved |= BitOf(axis);
    last_ = number + 1 < counts_[axis] ? last_ & ~BitOf(axis) : last_ | BitOf(axis);
    if (number > 0) break;
  }
  return moved;
}

void Schedule::MoveBox(const Ring& ring, AxisSet moved, Box* box) const {
  for (int d = 0; d < 6; ++d) {
    const int axis = ring.tiles.AxisOf(d);
    if (axis < kAxes && (moved & BitOf(axis)) != 0) {
      box->Set(d, ring.tiles.RangeAt(d, step_.index[axis]));
    }
  }
}

void Schedule::Enter(Ring* ring, OperandStep* out) {
  const int before = ring->current;
  Stay(out);
  const auto begin = ring->slots.begin(), end = ring->slots.end();
  const auto held = std::find_if(
      begin, end, [&](const Ring::Slot& slot) { return slot.used >= 0 && slot.box == out->box; });
  const auto oldest = std::min_element(
      begin, end, [](const Ring::Slot& a, const Ring::Slot& b) { return a.used < b.used; });
  out->enter = held == end;
  out->slot = static_cast<int>((out->enter ? oldest : held) - begin);
  ring->current = out->slot;
  if (!out->enter) return;
  if (ring->rolls && before >= 0 && before != out->slot) {
    Roll(ring->slots[static_cast<size_t>(before)].box, before, out);
  }
  oldest->box = out->box;
}

void Schedule::Roll(const Box& old, int slot, OperandStep* out) {
  const int d = OnlyDifference(old, out->box);
  if (d < 3 || out->box.origin[d] < old.origin[d]) return;
  if (old.extent != out->box.extent) return;  // a short tile beside a usual one: layouts may differ
  const int64_t from_row = out->box.origin[d] - old.origin[d];
  if (from_row >= old.extent[d]) return;
  out->from_slot = slot;
  out->roll_axis = d;
  out->from_row = from_row;
  out->kept = old.extent[d] - from_row;
}

}  // namespace oocdnn
