// Blocked sums: the grouping of long float32 sums into blocks.
//
// A float32 sum of n terms, added one after the other, has an error of up to n roundings. The
// direct engine sums blocks of a few hundred terms instead and adds the sums of the blocks. The
// boundaries of the blocks depend on the problem alone, so that results keep their bits for every
// tiling whose cuts lie on boundaries.
#pragma once

#include <array>

#include "geom/tile_op.hpp"

namespace oocdnn {

// Filter gradients sum over pixels, in the order N D H W, in blocks of at most kPixelBlock pixels.
// The sums of blocks are added in float64.
constexpr int64_t kPixelBlock = 256;

// Extents on N, D, H, W.
using PixelArray = std::array<int64_t, 4>;

// The extents of one block: aligned boxes of output pixels, consecutive in the order of the sum.
// A tile whose lengths on cut axes are multiples of these has blocks of the same extents.
PixelArray PixelBlockOf(const PixelArray& extent);
PixelArray PixelBlockOf(const ConvShape& shape);

// Forward and backward data sum over channels and taps, in blocks of at most kTapBlock terms. The
// sums of blocks are added in float32, in groups of whole channels with about kTapGroup terms, and
// the sums of the groups are added in float32 too. A sum of at most kTapBlock terms is not grouped.
constexpr int64_t kTapBlock = 168;
constexpr int64_t kTapGroup = int64_t{1} << 15;

// The channels over which forward or backward data sum, and those of one group.
int64_t SummedChannelsOf(Direction direction, const ConvShape& shape);
int64_t GroupChannelsOf(const ConvShape& shape);
// Whether the sum is short enough for one block.
bool IsOneBlock(Direction direction, const ConvShape& shape);

// Rows of taps of one block, where each row has `cols` taps; a row with more than kTapBlock taps is
// cut after every kTapBlock.
constexpr int64_t BlockRowsOf(int64_t cols) { return cols >= kTapBlock ? 1 : kTapBlock / cols; }

}  // namespace oocdnn
