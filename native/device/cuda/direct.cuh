// The direct convolution: every output element is one chain of multiplications and additions in a
// fixed order, each rounded (the build forbids fusing), which continues from the tile's content
// when asked to accumulate. So cutting an output axis never changes bits. The orders:
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

// The chain over one reduced channel's taps. `source` and `weights` are of that channel.
template <class In, class T>
OOC_HOST_DEVICE void GatherTaps(const DirectArgs& args, const GatherItem& item, const In* source,
                                const In* weights, DirectSums<T>* sums) {
  const Long* const xs = args.x_stride.at;
  const Long* const ws = args.w_stride.at;
  const Long channel_step = args.backward == 0 ? ws[1] : ws[2];
  int d, h, w;
  for (int t = 0; t < args.filter[0]; ++t) {
    if (!SourceOf(args, 0, item.out[0], t, &d)) continue;
    for (int r = 0; r < args.filter[1]; ++r) {
      if (!SourceOf(args, 1, item.out[1], r, &h)) continue;
      const bool row = Inside(d, args.in[0]) && Inside(h, args.in[1]);
      for (int s = 0; s < args.filter[2]; ++s) {
        if (!SourceOf(args, 2, item.out[2], s, &w)) continue;
        T value = T(0);
        if (row && Inside(w, args.in[2])) {
          value = static_cast<T>(Widen(source[d * xs[3] + h * xs[4] + w * xs[5]]));
        }
        AddProducts(sums, value, weights + (t * ws[3] + r * ws[4] + s * ws[5]), channel_step,
                    item.count);
      }
    }
  }
}

template <class In, class T>
OOC_HOST_DEVICE void GatherTyped(const DirectArgs& args, const Grid& grid) {
  const In* const read = static_cast<const In*>(args.backward == 0 ? args.x : args.dy);
  const Long* const xs = args.x_stride.at;
  const Long* const ws = args.w_stride.at;
  const Long* const os = args.out_stride.at;
  const Long channel_step = args.backward == 0 ? ws[1] : ws[2];
  const Long reduced_step = args.backward == 0 ? ws[2] : ws[1];
  OOC_THREADS(thread) {
    for (Long number = static_cast<Long>(grid.block) * grid.threads + thread; number < args.count;
         number += static_cast<Long>(grid.blocks) * grid.threads) {
      const GatherItem item = GatherItemOf(args, number);
      const In* source = read + (item.n * xs[0] + item.g * xs[1]);
      const In* weights =
          static_cast<const In*>(args.w) + (item.g * ws[0] + item.channel * channel_step);
      T* const out = static_cast<T*>(args.out) +
                     (item.n * os[0] + item.g * os[1] + item.channel * os[2] +
                      item.out[0] * os[3] + item.out[1] * os[4] + item.out[2] * os[5]);
      DirectSums<T> sums;
      LoadSums(&sums, out, os[2], item.count, args.accumulate != 0);
      for (int c = 0; c < args.reduced; ++c, source += xs[2], weights += reduced_step) {
        GatherTaps(args, item, source, weights, &sums);
      }
      StoreSums(sums, out, os[2], item.count);
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

// The whole chain of one filter tap. `x` is of the tap's first place, `dy` of the first channel.
template <class In, class T>
OOC_HOST_DEVICE void FilterChain(const DirectArgs& args, const FilterItem& item, const In* x,
                                 const In* dy, DirectSums<T>* sums) {
  const Long* const xs = args.x_stride.at;
  const Long* const ys = args.w_stride.at;
  for (int n = 0; n < args.n; ++n) {
    for (int o = 0; o < args.out_extent[0]; ++o) {
      for (int p = 0; p < args.out_extent[1]; ++p) {
        const In* from = x + (n * xs[0] + o * args.stride[0] * xs[3] + p * args.stride[1] * xs[4]);
        const In* with = dy + (n * ys[0] + o * ys[3] + p * ys[4]);
        for (int q = 0; q < args.out_extent[2]; ++q) {
          AddProducts(sums, static_cast<T>(Widen(*from)), with, ys[2], item.count);
          from += args.stride[2] * xs[5];
          with += ys[5];
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
      T* const out = static_cast<T*>(args.out) + target;
      DirectSums<T> sums;
      LoadSums(&sums, out, os[1], item.count, args.accumulate != 0);
      FilterChain(args, item, static_cast<const In*>(args.x) + first,
                  static_cast<const In*>(args.dy) + (item.g * ys[1] + item.k * ys[2]), &sums);
      StoreSums(sums, out, os[1], item.count);
    }
  }
}

OOC_BODY void DirectFilter(const DirectArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.type, In, FilterTyped<In, SumType<In>::Type>(args, grid);)
}

}  // namespace oocdnn::cuda
