// Cuts: one axis of a tiling at a time. Everything that a price needs of a tiling is a product over
// the axes of what is computed here once per axis and tile length. Short tiles of a taper count in
// the sums over tiles; extents of one tile are those of a usual one (see model/price/tapered.hpp).
#pragma once

#include <array>
#include <vector>

#include "geom/tiling.hpp"
#include "model/price/rows.hpp"

namespace oocdnn {

// One operand along the one dimension that the axis moves, summed over the axis's tiles.
struct CutRows {
  int dimension = 0;
  int64_t extents = 1;  // rows of the tiles, zero rows too
  StepCount valid;      // rows that a fetch of every tile brings
  StepCount rolled;     // the same where each tile takes over the rows that it shares with the last
  int64_t kept = 0;     // rows taken over that way, zero rows too
};

struct AxisCut {
  Axis axis = Axis::kN;
  int64_t length = 1, count = 1;
  int64_t in = 1, out = 1;  // of the tile's convolution, spatial axes only, as what follows
  int64_t pooled = 1, saved = 1;
  std::array<CutRows, kOperands> rows;
};

// The cut of `axis` in `tiling`.
AxisCut CutOf(const Problem& problem, const Tiling& tiling, Axis axis);

using Cuts = std::array<const AxisCut*, kAxes>;

// The cuts of a whole tiling, which outlive the pointers to them.
struct OwnedCuts {
  OwnedCuts(const Problem& problem, const Tiling& tiling) {
    for (int i = 0; i < kAxes; ++i) {
      cut[i] = CutOf(problem, tiling, static_cast<Axis>(i));
      cuts[i] = &cut[i];
    }
  }
  std::array<AxisCut, kAxes> cut;
  Cuts cuts{};
};

AxisArray CountsOf(const Cuts& cuts);
int64_t StepsOf(const Cuts& cuts);  // saturating
AxisArray CountsOf(const Tiling& tiling);
// The extents of the tile's convolution (its pads are not filled in).
ConvShape ShapeOf(const Problem& problem, const Cuts& cuts);
void SetExtents(const AxisCut& cut, ConvShape* shape);

// Tile lengths worth trying, longest first: the balanced ceil(extent / n) for n growing by the
// factor `growth` (every n while it is below 1 / (growth - 1)), and the shortest possible. Cut
// channel axes come in multiples of 16 where that wastes little. Always contains the whole extent.
std::vector<int64_t> UsualLengths(const Problem& problem, Axis axis, double growth);
// Every length that makes a different tiling.
std::vector<int64_t> AllLengths(const Problem& problem, Axis axis);

}  // namespace oocdnn
