// What a step of a schedule costs, and what short tiles change of the totals, which are products
// over axes of tiles that are all alike.
#pragma once

#include "model/price/cost.hpp"

namespace oocdnn {

// One tile's convolution, the pass that finishes it, the one that restores its dy, and the one over
// what it fetched.
struct TileSeconds {
  double run = 0.0, finish = 0.0, restore = 0.0, normalize = 0.0;
};
// Of a usual tile, or of a short one of a tapered tiling.
TileSeconds SecondsOf(const Problem& problem, const Rates& rates, const Tiling& tiling,
                      bool is_short);

// What one step's transfer of one operand comes to.
struct Load {
  int64_t elements = 1;
  RowCount rows;
};
Load LoadOf(const Dims& moved, const MemoryOrder::Steps& steps);
// Of its box, the extents that are transferred: without padding, and what is rolled over.
Dims TransferredOf(const OperandStep& operand);

// Has the totals of a tapered tiling agree with its tiles: how long they are computed, and what is
// fetched before the first and drained behind the last.
void CountShort(const Problem& problem, const Rates& rates, const Tiling& tiling, Totals* totals);

}  // namespace oocdnn
