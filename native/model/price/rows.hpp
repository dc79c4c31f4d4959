// Rows: how many contiguous pieces of the caller's memory a tile is made of.
//
// A transfer of many short rows is slower than its bytes say (see RowBytes), so cuts
// along the axis that memory runs along cost more than cuts across it; the more so where the next
// row lies far away, on another page. A GPU copies a row in pieces of 64 KiB: a far row of whole
// pieces is as cheap as a near one, so it is the last piece that costs
// (docs/results/h200/copies.txt).
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "base/checked.hpp"
#include "geom/tiling.hpp"

namespace oocdnn {

// For each operand, its dimensions that lie one inside the other without gaps, fastest first.
class MemoryOrder {
 public:
  explicit MemoryOrder(const Problem& problem);

  // What a step along a dimension of a tile does. A row runs along whole dimensions and the first
  // that is cut, where it ends; any other step begins a new one, near by or kFarBytes away or more.
  enum class Step : char { kInRow, kRowEnd, kNear, kFar };
  static constexpr int64_t kFarBytes = 65536;
  struct Steps {
    std::array<Step, 6> along{};
    int64_t piece = kFarBytes;  // see PieceOf; of the dimension in which rows end
    bool broken = false;        // see RowCount

    Step operator[](int dimension) const { return along[static_cast<size_t>(dimension)]; }
  };
  // counts[i]: pieces of axis i.
  [[nodiscard]] Steps StepsOf(Operand operand, const AxisArray& counts) const;

 private:
  struct Dimension {
    int number;
    int axis;       // that cuts it, or kAxes
    int64_t piece;  // see PieceOf
  };
  std::array<std::vector<Dimension>, kOperands> dense_;
  std::array<Steps, kOperands> outside_{};  // of dimensions that no row runs along
};

// Steps along a dimension, of one tile or of many.
struct StepCount {
  int64_t all = 1;
  int64_t filled = 1;   // tiles that have any
  int64_t partial = 1;  // of those, tiles that have no multiple of a piece, see PieceOf
};
inline StepCount OneTile(int64_t steps, int64_t piece) {
  return {steps, std::min<int64_t>(steps, 1), steps % piece != 0 ? 1 : 0};
}

// Contiguous rows: all, and those of them that begin far from where the one before ended and are
// not made of whole pieces of kFarBytes.
struct RowCount {
  int64_t all = 1, far = 1;
  bool broken = false;  // the columns are cut, and so rows begin at any element

  // So many steps along a dimension; none at all leave no row.
  void Multiply(MemoryOrder::Step step, const StepCount& steps) {
    const bool ends = step == MemoryOrder::Step::kRowEnd;
    const bool inside = ends || step == MemoryOrder::Step::kInRow;
    const bool beyond = step == MemoryOrder::Step::kFar;
    all = Mul(all, inside ? steps.filled : steps.all);
    far = Mul(far, ends ? steps.partial : beyond ? steps.all : steps.filled);
  }
};

// Rows that end in this dimension of the operand are made of whole pieces of kFarBytes where they
// have a multiple of so many steps along it, which is a power of two.
int64_t PieceOf(const Problem& problem, Operand operand, int dimension);

// The dimension of the operand's box that `axis` moves; it must move one.
int DimensionOf(const Problem& problem, Operand operand, Axis axis);
// An operand of the same shape: the sum for the old output and the residual, x for the input, w for
// dw, else the operand itself.
Operand ShapedAs(const Problem& problem, Operand operand);

}  // namespace oocdnn
