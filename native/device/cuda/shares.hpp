// How the threads of a kernel share out a tile: arithmetic only.
#pragma once

#include "device/cuda/gpu.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

struct Sharing {
  TileShares shares{};
  LaunchShape shape;  // without shared memory
};

// Of a tile of such extents: `across`, neighbouring threads have neighbouring channels, where these
// lie nearest in memory. Otherwise they have neighbours along W, `width` of which are a share that
// `threads_each` threads work on.
struct ShareUnits {
  bool across = false;
  int width = 1, threads_each = 1;
};
Sharing ShareOut(const Dims& extents, const ShareUnits& units, int multiprocessors);

// The strides of a plain tile (see CheckPlain); 0 where the extent is 1.
void SetStrides(const TileLayout& layout, int (*stride)[kCopyDims]);
// Whether the tile at `data` is whole vectors of so many elements along one of its dimensions,
// which all lie at multiples of their size.
bool IsVectors(const TileLayout& layout, const void* data, int dimension, int64_t count);
// kUnsupported where a tile is not plain, or has more elements than an int counts.
Status CheckPlain(const TileLayout& layout);

}  // namespace oocdnn::cuda
