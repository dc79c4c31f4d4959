// Rows: how many contiguous pieces of the caller's memory a tile is made of.
//
// A transfer of many short rows is slower than its bytes say (see Profile::row_bytes), so cuts
// along the axis that memory runs along cost more than cuts across it.
#pragma once

#include <array>
#include <vector>

#include "geom/tiling.hpp"

namespace oocdnn {

// For each operand, its dimensions that lie one inside the other without gaps, fastest first.
class MemoryOrder {
 public:
  explicit MemoryOrder(const Problem& problem);

  // The dimensions that a row of a tile runs along: whole ones and the first that is cut, each of
  // which adds no rows. counts[i]: pieces of axis i.
  using Inside = std::array<bool, 6>;
  [[nodiscard]] Inside InsideOf(Operand operand, const AxisArray& counts) const;

 private:
  struct Dimension {
    int number;
    int axis;  // that cuts it, or kAxes
  };
  std::array<std::vector<Dimension>, kOperands> dense_;
};

// The dimension of the operand's box that `axis` moves; it must move one.
int DimensionOf(const Problem& problem, Operand operand, Axis axis);
// `operand`, or the output for the operands that are shaped as it is.
Operand ShapedAs(const Problem& problem, Operand operand);

}  // namespace oocdnn
