// Rows: how many contiguous pieces of the caller's memory a tile is made of.
//
// A transfer of many short rows is slower than its bytes say (see RowBytes), so cuts
// along the axis that memory runs along cost more than cuts across it; the more so where the next
// row lies far away, on another page.
#pragma once

#include <array>
#include <vector>

#include "geom/tiling.hpp"

namespace oocdnn {

// For each operand, its dimensions that lie one inside the other without gaps, fastest first.
class MemoryOrder {
 public:
  explicit MemoryOrder(const Problem& problem);

  // What a step along a dimension of a tile does. A row runs along whole dimensions and the first
  // that is cut; any other step begins a new one, near by or kFarBytes away or more.
  enum class Step : char { kInRow, kNear, kFar };
  static constexpr int64_t kFarBytes = 65536;
  using Steps = std::array<Step, 6>;
  // counts[i]: pieces of axis i.
  [[nodiscard]] Steps StepsOf(Operand operand, const AxisArray& counts) const;

 private:
  struct Dimension {
    int number;
    int axis;  // that cuts it, or kAxes
  };
  std::array<std::vector<Dimension>, kOperands> dense_;
  std::array<Steps, kOperands> outside_{};  // of dimensions that no row runs along
};

// Contiguous rows: all, and those of them that begin far from where the one before ended.
struct RowCount {
  int64_t all = 1, far = 1;

  // So many steps along a dimension; none at all leave no row.
  void Multiply(MemoryOrder::Step step, int64_t steps);
};

// The dimension of the operand's box that `axis` moves; it must move one.
int DimensionOf(const Problem& problem, Operand operand, Axis axis);
// `operand`, or the sum for the operands that are shaped as it is.
Operand ShapedAs(const Problem& problem, Operand operand);

}  // namespace oocdnn
