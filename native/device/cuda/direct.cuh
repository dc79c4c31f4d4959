// The direct convolution: every output element is a sum of products in a fixed order, each
// operation rounded (the build forbids fusing), in the blocks of geom/sum_blocks.hpp. So cutting an
// output axis never changes bits. The orders:
//
//   forward c t r s;  backward data k t r s;  backward filter n o p q
//   backward bias n o p q, in bias.cuh
//
// A thread works on up to kDirectChannels neighbouring channels of one place.
#pragma once

#include "device/cuda/copy.cuh"

namespace oocdnn::cuda {

template <class T>
struct DirectSums {
  T at[kDirectChannels];
};

// Starts the sums from what `out` holds, or from zero; and puts them there.
template <class T>
OOC_HOST_DEVICE void LoadSums(DirectSums<T>* sums, const T* out, Long step, int count, bool load) {
  OOC_UNROLL
  for (int c = 0; c < kDirectChannels; ++c) {
    sums->at[c] = load && c < count ? out[c * step] : T(0);
  }
}
template <class T>
OOC_HOST_DEVICE void StoreSums(const DirectSums<T>& sums, T* out, Long step, int count) {
  OOC_UNROLL
  for (int c = 0; c < kDirectChannels; ++c) {
    if (c < count) out[c * step] = sums.at[c];
  }
}

// Adds the sums of a block, or of a group of blocks, to `to`, and starts the next from zero.
template <class T, class Out>
OOC_HOST_DEVICE void CloseBlock(DirectSums<T>* sums, DirectSums<Out>* to) {
  OOC_UNROLL
  for (int c = 0; c < kDirectChannels; ++c) {
    to->at[c] = to->at[c] + static_cast<Out>(sums->at[c]);
    sums->at[c] = T(0);
  }
}

// One step of every chain: sums += factor * others[0, step, 2 * step, ...].
template <class In, class T>
OOC_HOST_DEVICE void AddProducts(DirectSums<T>* sums, T factor, const In* others, Long step,
                                 int count) {
  OOC_UNROLL
  for (int c = 0; c < kDirectChannels; ++c) {
    if (c >= count) break;
    const T product = factor * static_cast<T>(Widen(others[c * step]));
    sums->at[c] = sums->at[c] + product;
  }
}

OOC_HOST_DEVICE int TakeLong(Long* rest, int extent) {
  const Long quotient = *rest / extent;
  const int index = static_cast<int>(*rest - quotient * extent);
  *rest = quotient;
  return index;
}

// The place that output place `out` reads along axis d with filter tap `tap`: false where no such
// place is reached. The place may lie outside of the read tensor, where it counts as zero.
OOC_HOST_DEVICE bool SourceOf(const DirectArgs& args, int d, int out, int tap, int* place) {
  if (args.backward == 0) {
    *place = out * args.stride[d] + tap * args.dilation[d];
    return true;
  }
  const int distance = out - tap * args.dilation[d];
  *place = distance;
  if (args.stride[d] == 1) return true;
  *place = distance / args.stride[d];
  return *place * args.stride[d] == distance;
}

OOC_HOST_DEVICE bool Inside(int place, int extent) { return place >= 0 && place < extent; }

// Where a thread of the gather kernel works: image, group, first channel, place.
struct GatherItem {
  int n, g, channel, count, out[3];
};

OOC_HOST_DEVICE GatherItem GatherItemOf(const DirectArgs& args, Long number) {
  GatherItem item;
  for (int d = 2; d >= 0; --d) item.out[d] = TakeLong(&number, args.out_extent[d]);
  item.n = TakeLong(&number, args.n);
  const int blocks = (args.channels + kDirectChannels - 1) / kDirectChannels;
  item.channel = TakeLong(&number, blocks) * kDirectChannels;
  item.g = static_cast<int>(number);
  const int left = args.channels - item.channel;
  item.count = left < kDirectChannels ? left : kDirectChannels;
  return item;
}

// Taps on W that reach the item's place.
OOC_HOST_DEVICE int TapsOfRow(const DirectArgs& args, const GatherItem& item) {
  int taps = 0, place;
  for (int s = 0; s < args.filter[2]; ++s) {
    if (SourceOf(args, 2, item.out[2], s, &place)) ++taps;
  }
  return taps;
}

// Sums under way: of the terms of an open block, of the closed blocks of a group, and all others.
template <class T>
struct GatherSums {
  DirectSums<T> block, group, all;
  int passed, cols;  // terms of the open block; of a row of taps
};

// The terms of one reduced channel's taps. `source` and `weights` are of that channel.
template <class In, class T>
OOC_HOST_DEVICE void GatherTaps(const DirectArgs& args, const GatherItem& item, const In* source,
                                const In* weights, GatherSums<T>* sums) {
  const Long* const xs = args.x_stride.at;
  const Long* const ws = args.w_stride.at;
  const Long channel_step = args.backward == 0 ? ws[1] : ws[2];
  int d, h, w;
  for (int t = 0; t < args.filter[0]; ++t) {
    if (!SourceOf(args, 0, item.out[0], t, &d)) continue;
    for (int r = 0; r < args.filter[1]; ++r) {
      if (!SourceOf(args, 1, item.out[1], r, &h)) continue;
      const bool row = Inside(d, args.in[0]) && Inside(h, args.in[1]);
      if (sums->passed > 0 && sums->passed + sums->cols > kDirectBlock) {
        CloseBlock(&sums->block, &sums->group);
        sums->passed = 0;
      }
      for (int s = 0; s < args.filter[2]; ++s) {
        if (!SourceOf(args, 2, item.out[2], s, &w)) continue;
        if (sums->passed == kDirectBlock) {
          CloseBlock(&sums->block, &sums->group);
          sums->passed = 0;
        }
        ++sums->passed;
        T value = T(0);
        if (row && Inside(w, args.in[2])) {
          value = static_cast<T>(Widen(source[d * xs[3] + h * xs[4] + w * xs[5]]));
        }
        AddProducts(&sums->block, value, weights + (t * ws[3] + r * ws[4] + s * ws[5]),
                    channel_step, item.count);
      }
    }
  }
}

// The whole sums of an item: a single block continues from what `out` holds, and groups of blocks
// are added to it.
template <class In, class T>
OOC_HOST_DEVICE void GatherAll(const DirectArgs& args, const GatherItem& item, const In* source,
                               const In* weights, T* out) {
  const Long channel = args.x_stride.at[2], step = args.out_stride.at[2];
  const Long reduced_step = args.backward == 0 ? args.w_stride.at[2] : args.w_stride.at[1];
  const bool load = args.accumulate != 0;
  GatherSums<T> sums;
  LoadSums(&sums.block, out, step, item.count, load && args.one_block != 0);
  LoadSums(&sums.group, out, step, item.count, false);
  LoadSums(&sums.all, out, step, item.count, load && args.one_block == 0);
  sums.passed = 0;
  sums.cols = TapsOfRow(args, item);
  for (int c = 0, left = args.group_channels; c < args.reduced; ++c, --left) {
    if (left == 0) {
      CloseBlock(&sums.block, &sums.group);
      CloseBlock(&sums.group, &sums.all);
      sums.passed = 0;
      left = args.group_channels;
    }
    GatherTaps(args, item, source, weights, &sums);
    source += channel;
    weights += reduced_step;
  }
  CloseBlock(&sums.block, &sums.group);
  CloseBlock(&sums.group, &sums.all);
  StoreSums(sums.all, out, step, item.count);
}

template <class In, class T>
OOC_HOST_DEVICE void GatherTyped(const DirectArgs& args, const Grid& grid) {
  const In* const read = static_cast<const In*>(args.backward == 0 ? args.x : args.dy);
  const Long* const xs = args.x_stride.at;
  const Long* const ws = args.w_stride.at;
  const Long* const os = args.out_stride.at;
  const Long channel_step = args.backward == 0 ? ws[1] : ws[2];
  OOC_THREADS(thread) {
    for (Long number = static_cast<Long>(grid.block) * grid.threads + thread; number < args.count;
         number += static_cast<Long>(grid.blocks) * grid.threads) {
      const GatherItem item = GatherItemOf(args, number);
      const In* source = read + (item.n * xs[0] + item.g * xs[1]);
      const In* weights =
          static_cast<const In*>(args.w) + (item.g * ws[0] + item.channel * channel_step);
      T* const out = static_cast<T*>(args.out) +
                     (item.n * os[0] + item.g * os[1] + item.channel * os[2] + item.out[0] * os[3] +
                      item.out[1] * os[4] + item.out[2] * os[5]);
      GatherAll<In, T>(args, item, source, weights, out);
    }
  }
}

template <class In>
struct SumType {
  using Type = float;
};
template <>
struct SumType<double> {
  using Type = double;
};

OOC_BODY void DirectGather(const DirectArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.type, In, GatherTyped<In, SumType<In>::Type>(args, grid);)
}

// Where a thread of the filter kernel works. Neighbouring threads have neighbouring channels of x
// over all groups, so that depthwise filters fill them too.
struct FilterItem {
  int g, c, k, count, tap[3];
};

OOC_HOST_DEVICE FilterItem FilterItemOf(const DirectArgs& args, Long number) {
  FilterItem item;
  item.c = TakeLong(&number, args.reduced);
  item.g = TakeLong(&number, args.g);
  for (int d = 2; d >= 0; --d) item.tap[d] = TakeLong(&number, args.filter[d]);
  item.k = static_cast<int>(number) * kDirectChannels;
  const int left = args.channels - item.k;
  item.count = left < kDirectChannels ? left : kDirectChannels;
  return item;
}

// Where block `number` begins and ends on an axis of the tile.
OOC_HOST_DEVICE void BlockRange(int number, int block, int first, int extent, int* begin,
                                int* end) {
  *begin = number * block - first;
  *end = *begin + block < extent ? *begin + block : extent;
  if (*begin < 0) *begin = 0;
}

OOC_HOST_DEVICE int BlocksOn(int block, int first, int extent) {
  return extent == 0 ? 0 : (first + extent + block - 1) / block;
}

// A block of positions: a box on N, D, H, W.
struct FilterBox {
  int begin[4], end[4];
};

// The sums of one block. `x` is of the tap's first place, `dy` of the first channel.
template <class In, class T>
OOC_HOST_DEVICE void FilterBlock(const DirectArgs& args, const FilterItem& item,
                                 const FilterBox& box, const In* x, const In* dy,
                                 DirectSums<T>* sums) {
  const Long* const xs = args.x_stride.at;
  const Long* const ys = args.w_stride.at;
  const int first = box.begin[3];
  for (int n = box.begin[0]; n < box.end[0]; ++n) {
    for (int o = box.begin[1]; o < box.end[1]; ++o) {
      for (int p = box.begin[2]; p < box.end[2]; ++p) {
        const In* from = x + (n * xs[0] + o * args.stride[0] * xs[3] + p * args.stride[1] * xs[4] +
                              first * args.stride[2] * xs[5]);
        const In* with = dy + (n * ys[0] + o * ys[3] + p * ys[4] + first * ys[5]);
        for (int q = first; q < box.end[3]; ++q) {
          AddProducts(sums, static_cast<T>(Widen(*from)), with, ys[2], item.count);
          from += args.stride[2] * xs[5];
          with += ys[5];
        }
      }
    }
  }
}

// Sums a block and adds it. Sums in double go on from one block to the next.
template <class In>
OOC_HOST_DEVICE void AddBlock(const DirectArgs& args, const FilterItem& item, const FilterBox& box,
                              const In* x, const In* dy, DirectSums<double>* sums, double) {
  FilterBlock(args, item, box, x, dy, sums);
}
template <class In>
OOC_HOST_DEVICE void AddBlock(const DirectArgs& args, const FilterItem& item, const FilterBox& box,
                              const In* x, const In* dy, DirectSums<double>* sums, float) {
  DirectSums<float> block;
  LoadSums(&block, static_cast<const float*>(nullptr), 0, item.count, false);
  FilterBlock(args, item, box, x, dy, &block);
  CloseBlock(&block, sums);
}

// All blocks of one filter tap in their order.
template <class In, class T>
OOC_HOST_DEVICE void FilterBlocks(const DirectArgs& args, const FilterItem& item, const In* x,
                                  const In* dy, DirectSums<double>* sums) {
  const int* const out = args.out_extent;
  FilterBox box;
  const int images = BlocksOn(args.block_n, 0, args.n);
  for (int n = 0; n < images; ++n) {
    BlockRange(n, args.block_n, 0, args.n, &box.begin[0], &box.end[0]);
    for (int o = 0; o < BlocksOn(args.block[0], args.first[0], out[0]); ++o) {
      BlockRange(o, args.block[0], args.first[0], out[0], &box.begin[1], &box.end[1]);
      for (int p = 0; p < BlocksOn(args.block[1], args.first[1], out[1]); ++p) {
        BlockRange(p, args.block[1], args.first[1], out[1], &box.begin[2], &box.end[2]);
        for (int q = 0; q < BlocksOn(args.block[2], args.first[2], out[2]); ++q) {
          BlockRange(q, args.block[2], args.first[2], out[2], &box.begin[3], &box.end[3]);
          AddBlock(args, item, box, x, dy, sums, T(0));
        }
      }
    }
  }
}

template <class In, class T>
OOC_HOST_DEVICE void FilterTyped(const DirectArgs& args, const Grid& grid) {
  const Long* const xs = args.x_stride.at;
  const Long* const ys = args.w_stride.at;
  const Long* const os = args.out_stride.at;
  OOC_THREADS(thread) {
    for (Long number = static_cast<Long>(grid.block) * grid.threads + thread; number < args.count;
         number += static_cast<Long>(grid.blocks) * grid.threads) {
      const FilterItem item = FilterItemOf(args, number);
      Long first = item.g * xs[1] + item.c * xs[2];
      Long target = item.g * os[0] + item.k * os[1] + item.c * os[2];
      for (int d = 0; d < 3; ++d) {
        first += static_cast<Long>(item.tap[d]) * args.dilation[d] * xs[3 + d];
        target += item.tap[d] * os[3 + d];
      }
      double* const out = static_cast<double*>(args.out) + target;
      DirectSums<double> sums;
      LoadSums(&sums, out, os[1], item.count, args.accumulate != 0);
      FilterBlocks<In, T>(args, item, static_cast<const In*>(args.x) + first,
                          static_cast<const In*>(args.dy) + (item.g * ys[1] + item.k * ys[2]),
                          &sums);
      StoreSums(sums, out, os[1], item.count);
    }
  }
}

OOC_BODY void DirectFilter(const DirectArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.type, In, FilterTyped<In, SumType<In>::Type>(args, grid);)
}

}  // namespace oocdnn::cuda
