#include "device/cpu/lattice.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn::cpu {
namespace {

// Merged channels [begin, end) of a blocked layout, one stride apart on the other side.
struct ChannelRange {
  int64_t begin, end;
  int64_t from_offset, from_stride;
};

Lattice PlainLattice(const TileLayout& layout, const Dims& other_stride, const Region& region) {
  Lattice lattice;
  for (int d = 0; d < 6; ++d) {
    lattice.dim[d] = {region.end[d] - region.begin[d], other_stride[d], layout.stride[d]};
    lattice.from_offset += region.begin[d] * other_stride[d];
    lattice.to_offset += region.begin[d] * layout.stride[d];
  }
  return lattice;
}

// The channels of a region as runs of merged channels: one run where the groups follow each other
// on the other side as they do in the tile, else one for each group.
std::vector<ChannelRange> ChannelRanges(const TileLayout& layout, const Dims& other,
                                        const Region& region) {
  const int64_t channels = layout.shape[2];
  const bool whole = region.begin[2] == 0 && region.end[2] == channels;
  const int64_t stride = channels == 1 ? other[1] : other[2];
  const bool joined = whole && (channels == 1 || other[1] == channels * other[2]);
  if (joined) {
    return {
        {region.begin[1] * channels, region.end[1] * channels, region.begin[1] * other[1], stride}};
  }
  std::vector<ChannelRange> ranges;
  for (int64_t g = region.begin[1]; g < region.end[1]; ++g) {
    ranges.push_back({g * channels + region.begin[2], g * channels + region.end[2],
                      g * other[1] + region.begin[2] * other[2], other[2]});
  }
  return ranges;
}

// Channels [begin, end) of one range that fill whole blocks, or lie inside one block.
Lattice BlockLattice(const TileLayout& layout, const Dims& other, const Region& region,
                     const ChannelRange& range, int64_t begin, int64_t end) {
  const int64_t block = layout.channel_block;
  const int64_t blocks = std::max<int64_t>((end - begin) / block, 1);
  Lattice lattice;
  lattice.dim[1] = {blocks, block * range.from_stride, layout.stride[2]};
  lattice.dim[2] = {(end - begin) / blocks, range.from_stride, 1};
  lattice.from_offset = range.from_offset + (begin - range.begin) * range.from_stride;
  lattice.to_offset = begin / block * layout.stride[2] + begin % block;
  for (const int d : {0, 3, 4, 5}) {
    lattice.dim[d] = {region.end[d] - region.begin[d], other[d], layout.stride[d]};
    lattice.from_offset += region.begin[d] * other[d];
    lattice.to_offset += region.begin[d] * layout.stride[d];
  }
  return lattice;
}

}  // namespace

bool Region::empty() const {
  for (int d = 0; d < 6; ++d) {
    if (begin[d] >= end[d]) return true;
  }
  return false;
}

Region Intersect(const Region& a, const Region& b) {
  Region both;
  for (int d = 0; d < 6; ++d) {
    both.begin[d] = std::max(a.begin[d], b.begin[d]);
    both.end[d] = std::min(a.end[d], b.end[d]);
  }
  return both;
}

std::vector<Lattice> Lattices(const TileLayout& layout, const Dims& other_stride,
                              const Region& region, bool lanes) {
  if (region.empty()) return {};
  if (layout.channel_block == 1) return {PlainLattice(layout, other_stride, region)};
  const int64_t block = layout.channel_block;
  const int64_t channels = layout.shape[1] * layout.shape[2];
  std::vector<Lattice> lattices;
  for (ChannelRange range : ChannelRanges(layout, other_stride, region)) {
    if (lanes && range.end == channels) range.end = RoundUp(channels, block);
    // The first, broken block; whole blocks; the last, broken block.
    const int64_t first = std::min(RoundUp(range.begin, block), range.end);
    const int64_t last = std::max(range.end / block * block, first);
    const int64_t cuts[] = {range.begin, first, last, range.end};
    for (int i = 0; i < 3; ++i) {
      if (cuts[i] == cuts[i + 1]) continue;
      lattices.push_back(BlockLattice(layout, other_stride, region, range, cuts[i], cuts[i + 1]));
    }
  }
  return lattices;
}

}  // namespace oocdnn::cpu
