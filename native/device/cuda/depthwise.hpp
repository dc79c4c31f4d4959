// Plans of the depthwise kernels: the division of a tile among thread blocks. Arithmetic only; no
// device is called.
#pragma once

#include "device/cuda/gpu.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct DepthwisePlan {
  DepthwiseArgs args{};
  LaunchShape shape;
};
// Forward and backward data, all but addresses. The layouts are dense. kUnsupported where what one
// output reads is too much for shared memory, or where the sums would be added in groups.
Result<DepthwisePlan> PlanDepthwise(const TileOp& op, int multiprocessors);

struct DepthwiseFilterPlan {
  DepthwiseFilterArgs args{};
  int64_t block_bytes = 0;  // of the sums of one block of pixels
  int64_t most_blocks = 0;  // at once
  int64_t tile_blocks = 0;  // that the tile has where it begins with one
  int threads = 0, shared_bytes = 0;
};
// Backward filter, all but addresses and how many blocks there are. kUnsupported as above, and for
// float64, whose sums go on from block to block.
Result<DepthwiseFilterPlan> PlanDepthwiseFilter(const TileOp& op, int multiprocessors);

}  // namespace oocdnn::cuda
