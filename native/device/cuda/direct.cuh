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
OOC_HOST_DEVICE void LoadSums(DirectSums<T>* sums, const T* out, int step, int count, bool load) {
  OOC_UNROLL
  for (int c = 0; c < kDirectChannels; ++c) {
    sums->at[c] = load && c < count ? out[c * step] : T(0);
  }
}
template <class T>
OOC_HOST_DEVICE void StoreSums(const DirectSums<T>& sums, T* out, int step, int count) {
  OOC_UNROLL
  for (int c = 0; c < kDirectChannels; ++c) {
    if (c < count) out[c * step] = sums.at[c];
  }
}

// Adds the sums of a group of blocks to what `out` holds, or to zero, and starts the next from
// zero.
template <class T>
OOC_HOST_DEVICE void AddGroup(DirectSums<T>* sums, T* out, int step, int count, bool load) {
  OOC_UNROLL
  for (int c = 0; c < kDirectChannels; ++c) {
    if (c < count) out[c * step] = (load ? out[c * step] : T(0)) + sums->at[c];
    sums->at[c] = T(0);
  }
}

// Adds the sums of a block to `to`, and starts the next from zero.
template <class T, class Out>
OOC_HOST_DEVICE void CloseBlock(DirectSums<T>* sums, DirectSums<Out>* to) {
  OOC_UNROLL
  for (int c = 0; c < kDirectChannels; ++c) {
    to->at[c] = to->at[c] + static_cast<Out>(sums->at[c]);
    sums->at[c] = T(0);
  }
}

template <class In, class T>
OOC_HOST_DEVICE void AddProduct(T* sum, T factor, In other) {
  const T product = factor * static_cast<T>(Widen(other));
  *sum = *sum + product;
}

// One step of every sum: sums += factor * others, whose channels lie side by side. The loads of a
// full set of channels overlap, because no branch lies between them.
template <class In, class T>
OOC_HOST_DEVICE void AddProducts(DirectSums<T>* sums, T factor, const In* others, int count) {
  if (count == kDirectChannels) {
    OOC_UNROLL
    for (int c = 0; c < kDirectChannels; ++c) AddProduct(&sums->at[c], factor, others[c]);
    return;
  }
  OOC_UNROLL
  for (int c = 0; c < kDirectChannels - 1; ++c) {
    if (c >= count) break;
    AddProduct(&sums->at[c], factor, others[c]);
  }
}

// Terms of a single sum whose loads overlap.
constexpr int kTermsAhead = 8, kTapsAhead = 3;

// Adds `count` products to one sum. Loads a few terms before it adds the first of them.
template <class In, class T>
OOC_HOST_DEVICE void AddRun(T* sum, const In* from, int from_step, const In* with, int with_step,
                            int count) {
  for (; count > 0; count -= kTermsAhead) {
    In value[kTermsAhead]{}, other[kTermsAhead]{};
    OOC_UNROLL
    for (int i = 0; i < kTermsAhead; ++i) {
      if (i >= count) continue;
      value[i] = from[i * from_step];
      other[i] = with[i * with_step];
    }
    OOC_UNROLL
    for (int i = 0; i < kTermsAhead; ++i) {
      if (i < count) AddProduct(sum, static_cast<T>(Widen(value[i])), other[i]);
    }
    from += kTermsAhead * from_step;
    with += kTermsAhead * with_step;
  }
}

OOC_HOST_DEVICE int TakeIndex(unsigned* rest, int extent) {
  const unsigned quotient = *rest / static_cast<unsigned>(extent);
  const unsigned index = *rest - quotient * static_cast<unsigned>(extent);
  *rest = quotient;
  return static_cast<int>(index);
}

OOC_HOST_DEVICE bool Inside(int place, int extent) { return place >= 0 && place < extent; }

// Where a thread of the gather kernel works: image, group, first channel, place.
struct GatherItem {
  int n, g, channel, count, out[3];
};

OOC_HOST_DEVICE GatherItem GatherItemOf(const DirectArgs& args, unsigned number) {
  GatherItem item;
  for (int d = 2; d >= 0; --d) item.out[d] = TakeIndex(&number, args.out_extent[d]);
  item.n = TakeIndex(&number, args.n);
  const int blocks = (args.channels + kDirectChannels - 1) / kDirectChannels;
  item.channel = TakeIndex(&number, blocks) * kDirectChannels;
  item.g = static_cast<int>(number);
  const int left = args.channels - item.channel;
  item.count = left < kDirectChannels ? left : kDirectChannels;
  return item;
}

// The taps on one axis that reach an output place: every `tap_step`-th from `first` on. They read
// from `place` on in steps of `place_step`. A place outside of the read tensor counts as zero.
struct AxisTaps {
  int count, first, place;
};

OOC_HOST_DEVICE AxisTaps AxisTapsOf(const DirectArgs& args, int d, int out) {
  const int taps = args.filter[d], stride = args.stride[d], step = args.tap_step[d];
  if (args.backward == 0) return {taps, 0, out * stride};
  if (stride == 1) return {taps, 0, out};
  for (int tap = 0; tap < step && tap < taps; ++tap) {
    const int distance = out - tap * args.dilation[d];
    const int place = distance / stride;
    if (place * stride == distance) return {(taps - tap + step - 1) / step, tap, place};
  }
  return {0, 0, 0};
}

// Sums under way: of the terms of an open block, and of the closed blocks of a group.
template <class T>
struct GatherSums {
  DirectSums<T> block, group;
  int passed;  // terms of the open block
};

// The terms of one reduced channel's taps. `source` is of that channel, `weights` of its first tap
// that reaches the item's place. With kOneBlock, all terms of the item are one block.
template <bool kOneBlock, class In, class T>
OOC_HOST_DEVICE void GatherTaps(const DirectArgs& args, const AxisTaps (&taps)[3], int count,
                                const In* source, const In* weights, GatherSums<T>* sums) {
  const int* const xs = args.x_stride.at;
  const int* const ws = args.w_stride.at;
  const int cols = taps[2].count, move = args.tap_step[2] * ws[5];
  for (int t = 0, d = taps[0].place; t < taps[0].count; ++t, d += args.place_step[0]) {
    for (int r = 0, h = taps[1].place; r < taps[1].count; ++r, h += args.place_step[1]) {
      const int extent = Inside(d, args.in[0]) && Inside(h, args.in[1]) ? args.in[2] : 0;
      const In* const from = source + (extent > 0 ? d * xs[3] + h * xs[4] : 0);
      const In* with = weights + (t * args.tap_step[0] * ws[3] + r * args.tap_step[1] * ws[4]);
      int w = taps[2].place;
      if (!kOneBlock && sums->passed > 0 && sums->passed + cols > kDirectBlock) {
        CloseBlock(&sums->block, &sums->group);
        sums->passed = 0;
      }
      for (int left = cols; left > 0;) {
        int run = left;
        if (!kOneBlock) {
          if (sums->passed == kDirectBlock) {
            CloseBlock(&sums->block, &sums->group);
            sums->passed = 0;
          }
          const int room = kDirectBlock - sums->passed;
          run = left < room ? left : room;
          sums->passed += run;
        }
        left -= run;
        OOC_KEEP_ROLLED
        for (; run > 0; --run, w += args.place_step[2], with += move) {
          const T value = Inside(w, extent) ? static_cast<T>(Widen(from[w])) : T(0);
          AddProducts(&sums->block, value, with, count);
        }
      }
    }
  }
}

// The whole sums of an item. A single block continues from what `out` holds; groups of blocks are
// added to it, one after the other.
template <bool kOneBlock, class In, class T>
OOC_HOST_DEVICE void GatherAll(const DirectArgs& args, const GatherItem& item, const In* source,
                               const In* weights, T* out) {
  const int channel = args.x_stride.at[2], step = args.out_stride.at[2];
  const int* const ws = args.w_stride.at;
  const int reduced_step = args.backward == 0 ? ws[2] : ws[1];
  AxisTaps taps[3];
  for (int d = 0; d < 3; ++d) {
    taps[d] = AxisTapsOf(args, d, item.out[d]);
    weights += taps[d].first * ws[3 + d];
  }
  bool load = args.accumulate != 0;
  GatherSums<T> sums;
  LoadSums(&sums.block, out, step, item.count, kOneBlock && load);
  LoadSums(&sums.group, out, step, item.count, false);
  sums.passed = 0;
  for (int c = 0, left = args.group_channels; c < args.reduced; ++c, --left) {
    if (!kOneBlock && left == 0) {
      CloseBlock(&sums.block, &sums.group);
      AddGroup(&sums.group, out, step, item.count, load);
      load = true;
      sums.passed = 0;
      left = args.group_channels;
    }
    GatherTaps<kOneBlock>(args, taps, item.count, source, weights, &sums);
    source += channel;
    weights += reduced_step;
  }
  if (kOneBlock) {
    StoreSums(sums.block, out, step, item.count);
  } else {
    CloseBlock(&sums.block, &sums.group);
    AddGroup(&sums.group, out, step, item.count, load);
  }
}

// Adds the products of `count` taps to one sum. Loads a few before it adds the first of them.
template <class In, class T>
OOC_HOST_DEVICE void AddTaps(T* sum, const In* from, int place, int place_step, int extent,
                             const In* with, int with_step, int count) {
  for (; count > 0; count -= kTapsAhead) {
    T value[kTapsAhead]{};
    In other[kTapsAhead]{};
    OOC_UNROLL
    for (int i = 0; i < kTapsAhead; ++i, place += place_step, with += with_step) {
      if (i >= count) continue;
      value[i] = Inside(place, extent) ? static_cast<T>(Widen(from[place])) : T(0);
      other[i] = *with;
    }
    OOC_UNROLL
    for (int i = 0; i < kTapsAhead; ++i) {
      if (i < count) AddProduct(sum, value[i], other[i]);
    }
  }
}

// As GatherAll<true>, for one channel.
template <class In, class T>
OOC_HOST_DEVICE void GatherOne(const DirectArgs& args, const GatherItem& item, const In* source,
                               const In* weights, T* out) {
  const int* const xs = args.x_stride.at;
  const int* const ws = args.w_stride.at;
  AxisTaps taps[3];
  for (int d = 0; d < 3; ++d) {
    taps[d] = AxisTapsOf(args, d, item.out[d]);
    weights += taps[d].first * ws[3 + d];
  }
  T sum = args.accumulate != 0 ? *out : T(0);
  for (int c = 0; c < args.reduced; ++c) {
    for (int t = 0, d = taps[0].place; t < taps[0].count; ++t, d += args.place_step[0]) {
      for (int r = 0, h = taps[1].place; r < taps[1].count; ++r, h += args.place_step[1]) {
        const int extent = Inside(d, args.in[0]) && Inside(h, args.in[1]) ? args.in[2] : 0;
        AddTaps(&sum, source + (extent > 0 ? d * xs[3] + h * xs[4] : 0), taps[2].place,
                args.place_step[2], extent,
                weights + (t * args.tap_step[0] * ws[3] + r * args.tap_step[1] * ws[4]),
                args.tap_step[2] * ws[5], taps[2].count);
      }
    }
    source += xs[2];
    weights += args.backward == 0 ? ws[2] : ws[1];
  }
  *out = sum;
}

template <class In, class T>
OOC_HOST_DEVICE void GatherTyped(const DirectArgs& args, const Grid& grid) {
  const In* const read = static_cast<const In*>(args.backward == 0 ? args.x : args.dy);
  const int* const xs = args.x_stride.at;
  const int* const ws = args.w_stride.at;
  const int* const os = args.out_stride.at;
  OOC_THREADS(thread) {
    for (unsigned number = grid.block * grid.threads + thread; number < args.count;
         number += grid.blocks * grid.threads) {
      const GatherItem item = GatherItemOf(args, number);
      const In* source = read + (item.n * xs[0] + item.g * xs[1]);
      const In* weights = static_cast<const In*>(args.w) + (item.g * ws[0] + item.channel);
      T* const out = static_cast<T*>(args.out) +
                     (item.n * os[0] + item.g * os[1] + item.channel * os[2] + item.out[0] * os[3] +
                      item.out[1] * os[4] + item.out[2] * os[5]);
      if (args.one_block != 0 && item.count == 1) {
        GatherOne(args, item, source, weights, out);
      } else if (args.one_block != 0) {
        GatherAll<true>(args, item, source, weights, out);
      } else {
        GatherAll<false>(args, item, source, weights, out);
      }
    }
  }
}

OOC_BODY void DirectGather(const DirectArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.type, In, GatherTyped<In, ComputeType<In>::Type>(args, grid);)
}

// The work of a thread or block of a filter kernel: `count` neighbouring channels k of one tap, the
// elements of x and dy that their sums begin with, and the place of the sums. Neighbours in number
// have neighbouring channels of x over all groups, so that depthwise filters fill warps too.
struct FilterItem {
  int count, x, dy, out;
};

OOC_HOST_DEVICE FilterItem FilterItemOf(const DirectArgs& args, unsigned number, int channels) {
  const int* const xs = args.x_stride.at;
  const int* const ys = args.w_stride.at;
  const int* const os = args.out_stride.at;
  const int c = TakeIndex(&number, args.reduced);
  const int g = TakeIndex(&number, args.g);
  FilterItem item;
  item.x = g * xs[1] + c * xs[2];
  item.out = g * os[0] + c * os[2];
  for (int d = 2; d >= 0; --d) {
    const int tap = TakeIndex(&number, args.filter[d]);
    item.x += tap * args.dilation[d] * xs[3 + d];
    item.out += tap * os[3 + d];
  }
  const int k = static_cast<int>(number) * channels;
  item.dy = g * ys[1] + k;
  item.out += k * os[1];
  item.count = args.channels - k < channels ? args.channels - k : channels;
  return item;
}

// A block of positions: a box on N, D, H, W.
struct FilterBox {
  int begin[4], end[4];
};

OOC_HOST_DEVICE FilterBox FilterBoxOf(const DirectArgs& args, unsigned number) {
  FilterBox box;
  OOC_UNROLL
  for (int i = 3; i >= 0; --i) {
    const int begin = TakeIndex(&number, args.blocks[i]) * args.block[i] - args.first[i];
    const int end = begin + args.block[i];
    box.begin[i] = begin < 0 ? 0 : begin;
    box.end[i] = end < args.extent[i] ? end : args.extent[i];
  }
  return box;
}

// The products of a row of positions, for one channel or for several.
template <class In, class T>
OOC_HOST_DEVICE void AddRow(T* sum, const In* from, int from_step, const In* with, int with_step,
                            int count, int) {
  AddRun(sum, from, from_step, with, with_step, count);
}
template <class In, class T>
OOC_HOST_DEVICE void AddRow(DirectSums<T>* sums, const In* from, int from_step, const In* with,
                            int with_step, int count, int channels) {
  if (channels == kDirectChannels) {
    OOC_UNROLL_BY(2)
    for (; count > 0; --count, from += from_step, with += with_step) {
      AddProducts(sums, static_cast<T>(Widen(*from)), with, kDirectChannels);
    }
    return;
  }
  OOC_KEEP_ROLLED
  for (; count > 0; --count, from += from_step, with += with_step) {
    AddProducts(sums, static_cast<T>(Widen(*from)), with, channels);
  }
}

// The sum or sums of one block. `x` is of the tap's first place, `dy` of the first channel.
template <class In, class Sums>
OOC_HOST_DEVICE void FilterBlock(const DirectArgs& args, const FilterBox& box, const In* x,
                                 const In* dy, int channels, Sums* sums) {
  const int* const xs = args.x_stride.at;
  const int* const ys = args.w_stride.at;
  const int first = box.begin[3], count = box.end[3] - first, step = args.stride[2] * xs[5];
  for (int n = box.begin[0]; n < box.end[0]; ++n) {
    for (int o = box.begin[1]; o < box.end[1]; ++o) {
      for (int p = box.begin[2]; p < box.end[2]; ++p) {
        const In* from = x + (n * xs[0] + o * args.stride[0] * xs[3] + p * args.stride[1] * xs[4]);
        const In* with = dy + (n * ys[0] + o * ys[3] + p * ys[4]);
        AddRow(sums, from + first * step, step, with + first * ys[5], ys[5], count, channels);
      }
    }
  }
}

// Sums a block and adds it. Sums in double go on from one block to the next.
template <class In>
OOC_HOST_DEVICE void AddBlock(const DirectArgs& args, const FilterBox& box, const In* x,
                              const In* dy, int count, DirectSums<double>* sums, double) {
  FilterBlock(args, box, x, dy, count, sums);
}
template <class In, class Out>
OOC_HOST_DEVICE void AddBlock(const DirectArgs& args, const FilterBox& box, const In* x,
                              const In* dy, int count, DirectSums<Out>* sums, float) {
  DirectSums<float> block;
  LoadSums(&block, static_cast<const float*>(nullptr), 0, count, false);
  FilterBlock(args, box, x, dy, count, &block);
  CloseBlock(&block, sums);
}

OOC_HOST_DEVICE unsigned FilterBlocksOf(const DirectArgs& args) {
  return static_cast<unsigned>(args.blocks[0] * args.blocks[1] * args.blocks[2] * args.blocks[3]);
}

template <class In, class T, class Out>
OOC_HOST_DEVICE void FilterTyped(const DirectArgs& args, const Grid& grid) {
  const unsigned blocks = FilterBlocksOf(args);
  const int step = args.out_stride.at[1];
  OOC_THREADS(thread) {
    for (unsigned number = grid.block * grid.threads + thread; number < args.count;
         number += grid.blocks * grid.threads) {
      const FilterItem item = FilterItemOf(args, number, kDirectChannels);
      const In* const x = static_cast<const In*>(args.x) + item.x;
      const In* const dy = static_cast<const In*>(args.dy) + item.dy;
      Out* const out = static_cast<Out*>(args.out) + item.out;
      DirectSums<Out> sums;
      LoadSums(&sums, out, step, item.count, args.accumulate != 0);
      for (unsigned block = 0; block < blocks; ++block) {
        AddBlock(args, FilterBoxOf(args, block), x, dy, item.count, &sums, T(0));
      }
      StoreSums(sums, out, step, item.count);
    }
  }
}

OOC_BODY void DirectFilter(const DirectArgs& args, const Grid& grid) {
  if (args.wide != 0) {
    OOC_WITH_ELEMENT(args.type, In, FilterTyped<In, ComputeType<In>::Type, double>(args, grid);)
  } else {
    OOC_WITH_ELEMENT(args.type, In,
                     FilterTyped<In, ComputeType<In>::Type, ComputeType<In>::Type>(args, grid);)
  }
}

// One filter element by a thread block: its threads sum the blocks of positions, as many as they
// are at a time, and one of them adds these sums in their order.
template <class In>
OOC_HOST_DEVICE void SumElement(const DirectArgs& args, const Grid& grid, const In* x, const In* dy,
                                double* out) {
  float* const part = static_cast<float*>(grid.shared);
  const unsigned blocks = FilterBlocksOf(args);
  for (unsigned first = 0; first < blocks; first += grid.threads) {
    OOC_THREADS(thread) {
      float sum = 0;
      const unsigned block = first + thread;
      if (block < blocks) FilterBlock(args, FilterBoxOf(args, block), x, dy, 1, &sum);
      part[thread] = sum;
    }
    OOC_BARRIER;
    OOC_THREADS(thread) {
      if (thread > 0) break;
      double sum = first > 0 || args.accumulate != 0 ? *out : 0;
      for (unsigned i = 0; i < grid.threads && first + i < blocks; ++i) {
        sum = sum + static_cast<double>(part[i]);
      }
      *out = sum;
    }
    OOC_BARRIER;
  }
}

// In double, the sum goes on from one block to the next.
OOC_HOST_DEVICE void SumElement(const DirectArgs& args, const Grid& grid, const double* x,
                                const double* dy, double* out) {
  OOC_THREADS(thread) {
    if (thread > 0) break;
    const unsigned blocks = FilterBlocksOf(args);
    double sum = args.accumulate != 0 ? *out : 0;
    for (unsigned block = 0; block < blocks; ++block) {
      FilterBlock(args, FilterBoxOf(args, block), x, dy, 1, &sum);
    }
    *out = sum;
  }
}

template <class In>
OOC_HOST_DEVICE void ElementsTyped(const DirectArgs& args, const Grid& grid) {
  for (unsigned number = grid.block; number < args.count; number += grid.blocks) {
    const FilterItem item = FilterItemOf(args, number, 1);
    SumElement(args, grid, static_cast<const In*>(args.x) + item.x,
               static_cast<const In*>(args.dy) + item.dy,
               static_cast<double*>(args.out) + item.out);
  }
}

OOC_BODY void DirectElements(const DirectArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.type, In, ElementsTyped<In>(args, grid);)
}

}  // namespace oocdnn::cuda
