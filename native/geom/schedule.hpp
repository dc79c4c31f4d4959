// Schedule: the order of the tiles, and what each step fetches, reuses, rolls over and drains.
//
// Pure arithmetic: the planner walks it to price a plan and the tile loop walks it to run one, so
// that both always speak of the same bytes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "geom/tiling.hpp"

namespace oocdnn {

using LoopOrder = std::array<Axis, kAxes>;  // outermost first
using Depths = std::array<int, kOperands>;  // slots in each operand's ring; 0 where unused

// Output axes before reduction axes, so that an output tile is finished before the next begins.
bool IsLegal(const Problem& problem, const Tiling& tiling, const LoopOrder& order);
LoopOrder DefaultOrder(const Problem& problem);

// Whether neighbouring boxes of the operand share halo rows, which are handed on inside the device.
bool Rolls(const Problem& problem, Operand operand);

// What one step does with one operand.
struct OperandStep {
  int slot = -1;       // the slot that holds the box during this step
  bool enter = false;  // the box is not there yet: fetch it (what is made: a new tile begins)
  // Of the sum, and of what is drained: this is the last step of its tile, finish and drain it.
  bool leave = false;
  // The rolling window: rows [0, kept) on `roll_axis` (a dimension of the box) are already on the
  // device, in slot `from_slot` at rows [from_row, from_row + kept). from_slot < 0: none.
  int from_slot = -1;
  int roll_axis = 0;
  int64_t kept = 0, from_row = 0;
  Box box;
};

struct Step {
  int64_t number = 0;
  TileIndex index{};
  std::array<OperandStep, kOperands> operand;
};

// From one step to the next little changes: only what an axis that moved on moves is looked at.
class Schedule {
 public:
  // `depths` are the ring sizes (>= 1 for every used operand). The problem must outlive this.
  Schedule(const Problem& problem, const Tiling& tiling, const LoopOrder& order,
           const Depths& depths);
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  [[nodiscard]] int64_t Steps() const { return steps_; }
  // The next step, valid until the next call; null after the last.
  const Step* Next();

 private:
  struct Ring {
    struct Slot {
      Box box;
      int64_t used = -1;  // the step that last used it; -1: empty
    };
    Operand operand;
    OperandTiles tiles;
    bool rolls, made;
    AxisSet moving = 0;   // axes that move its box
    AxisSet summing = 0;  // cut axes that do not: no later step adds to a tile at their ends
    std::vector<Slot> slots{};
    int current = -1;  // slot
  };

  // Turns to the next tile; the axes on which that is another one.
  AxisSet Advance();
  void MoveBox(const Ring& ring, AxisSet moved, Box* box) const;
  // Finds the slot of the box, which has moved.
  static void Enter(Ring* ring, OperandStep* out);
  // What is left of the box before, in that slot.
  static void Roll(const Box& old, int slot, OperandStep* out);

  Tiling tiling_;
  LoopOrder order_;
  AxisArray counts_{};
  AxisSet last_ = 0;  // axes on which the current tile is the last
  int64_t steps_ = 0, next_ = 0;
  std::vector<Ring> rings_;
  Step step_;
};

}  // namespace oocdnn
