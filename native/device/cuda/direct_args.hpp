// The arguments of convolutions that sum in the order and the blocks of the direct engine: its own,
// and the depthwise engine's.
#pragma once

#include "device/cuda/gpu.hpp"
#include "device/cuda/kernel_args.h"
#include "device/device.hpp"

namespace oocdnn::cuda {

// The most thread blocks of a launch; they take further work in rounds.
constexpr int64_t kMostBlocks = int64_t{1} << 20;
// A thread for each of `count` items.
LaunchShape ShapeOf(Long count);

TileStrides StridesOf(const TileLayout& layout);

// All but strides, counts, addresses and whether something is added to.
DirectArgs DirectArgsOf(const TileOp& op);

// Backward filter: where in a block the tile begins whose first row of y is `origin`, and how many
// blocks it has.
void PlaceBlocks(const Spatial& origin, DirectArgs* args);

// kUnsupported where a tile has 2^31 elements or more.
Status CheckElements(const TileOp& op);

// kUnsupported where padded extents, strides or windows on D, H and W pass `most`.
Status CheckExtents(const ConvShape& shape, const Spatial& most);

}  // namespace oocdnn::cuda
