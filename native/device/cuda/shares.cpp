#include "device/cuda/shares.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int kBlocks = 8;  // per multiprocessor: two rounds of what has registers there

}  // namespace

Sharing ShareOut(const Dims& extents, const ShareUnits& units, int multiprocessors) {
  const int64_t in_block = kShareThreads / units.threads_each;
  const int64_t most_blocks = int64_t{multiprocessors} * kBlocks;
  Sharing made;
  TileShares& shares = made.shares;
  Dims count = extents;
  count[5] = CeilDiv(extents[5], units.width);
  shares.loop = units.across ? 5 : extents[0] > 1 ? 0 : 2;
  shares.loop_extent = static_cast<int>(extents[shares.loop]);
  shares.loops = units.across ? units.width : kShareLoops;
  if (!units.across) {
    // One computation of places serves several images, or channels of one, while that leaves
    // enough for every multiprocessor to do.
    const int64_t all = Product(count), enough = most_blocks * in_block;
    shares.loops = static_cast<int>(std::min<int64_t>(kShareLoops, extents[shares.loop]));
    while (shares.loops > 1 && all / shares.loops < enough) shares.loops /= 2;
    count[shares.loop] = CeilDiv(extents[shares.loop], shares.loops);
  }
  shares.images = MakeDivisor(count[0]);
  shares.groups = MakeDivisor(count[1]);
  shares.channels = MakeDivisor(count[2]);
  shares.depth = MakeDivisor(count[3]);
  shares.height = MakeDivisor(count[4]);
  shares.width = MakeDivisor(count[5]);
  const int64_t all = Product(count);
  shares.count = static_cast<unsigned>(all);
  made.shape = {std::min(CeilDiv(all, in_block), most_blocks), kShareThreads, 0};
  return made;
}

Status CheckPlain(const TileLayout& layout) {
  if (layout.opaque || layout.channel_block != 1) {
    return Error(Code::kUnsupported, "the CUDA device pools plain tiles only");
  }
  const int64_t elements = Product(layout.shape);
  if (elements <= kMostElements) return {};
  return Error(Code::kUnsupported, "a tile has %lld elements; 2^31 - 1 are the most",
               static_cast<long long>(elements));
}

bool IsVectors(const TileLayout& layout, const void* data, int dimension, int64_t count) {
  const auto bytes = static_cast<uintptr_t>(SizeOf(layout.dtype) * count);
  if (reinterpret_cast<uintptr_t>(data) % bytes != 0) return false;
  if (layout.stride[dimension] != 1 || layout.shape[dimension] % count != 0) return false;
  for (int d = 0; d < kCopyDims; ++d) {
    if (d != dimension && layout.shape[d] > 1 && layout.stride[d] % count != 0) return false;
  }
  return true;
}

void SetStrides(const TileLayout& layout, int (*stride)[kCopyDims]) {
  for (int d = 0; d < kCopyDims; ++d) {
    (*stride)[d] = layout.shape[d] > 1 ? static_cast<int>(layout.stride[d]) : 0;
  }
}

}  // namespace oocdnn::cuda
