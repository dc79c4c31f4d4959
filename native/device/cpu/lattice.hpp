// Lattices: where the elements of a region of a tile lie, as plain strides.
//
// A region of a layout with channel blocks is not one strided array: its channels begin and end in
// the middle of blocks. It is cut here into pieces that are.
#pragma once

#include <vector>

#include "device/cpu/strided.hpp"
#include "device/device.hpp"

namespace oocdnn::cpu {

// A part of a tile in box coordinates.
struct Region {
  Dims begin{}, end{};
  [[nodiscard]] bool empty() const;
};

Region Intersect(const Region& a, const Region& b);

// `to` strides and `to_offset` address the tile, `from` and `from_offset` the other side: a
// tensor with the strides that Lattices was given, its offset counted from box element 0.
struct Lattice {
  std::array<StridedDim, kStridedDims> dim{};
  int64_t from_offset = 0, to_offset = 0;
};

// The pieces of `region`. `lanes` adds the padded lanes behind the last channel where the region
// reaches it (for what has no other side: zeroing, copies between tiles).
std::vector<Lattice> Lattices(const TileLayout& layout, const Dims& other_stride,
                              const Region& region, bool lanes);

}  // namespace oocdnn::cpu
