// The passes of a normalisation: scale, shift and activation in place, rounded once; and statistics
// of what a tile holds, one block a channel, in an order that the launch fixes.
#pragma once

#include "device/cuda/finish.cuh"
#include "geom/moments.h"

namespace oocdnn::cuda {

struct NormPlace {
  Long at, entry;
};

// The place of an element whose running number counts dimensions [first, last).
OOC_HOST_DEVICE NormPlace NormPlaceOf(const NormKernelArgs& args, int first, int last,
                                      unsigned number) {
  NormPlace place{0, 0};
  OOC_UNROLL
  for (int d = 0; d < kCopyDims; ++d) {
    if (d < first || d >= last) continue;
    const Long index = Take(&number, args.dim[d].extent);
    place.at += index * args.dim[d].stride;
    place.entry += index * args.dim[d].channel;
  }
  return place;
}

template <class Stored>
OOC_HOST_DEVICE void NormalizeStored(const NormKernelArgs& args, const Grid& grid) {
  using T = typename ComputeType<Stored>::Type;
  Stored* const tile = static_cast<Stored*>(args.tile);
  const T* const table = static_cast<const T*>(args.table);
  const T parameter = static_cast<T>(args.parameter);
  OOC_THREADS(thread) {
    OOC_KEEP_ROLLED
    for (unsigned number = grid.block * grid.threads + thread; number < args.count;
         number += grid.blocks * grid.threads) {
      const NormPlace place = NormPlaceOf(args, 0, args.dims, number);
      T v = static_cast<T>(Widen(tile[place.at]));
      if (table != nullptr) {
        v = v * table[2 * place.entry];
        v = v + table[2 * place.entry + 1];
      }
      tile[place.at] = Convert<Stored>(Activate(static_cast<Activation>(args.activation), parameter, v));
    }
  }
}

// A thread's elements, summed relative to the first of them, see MomentsAbout. The origin must be
// finite.
struct SumAbout {
  double origin = 0, sum = 0, square = 0;
  unsigned count = 0;

  OOC_MEMBER void Add(double v) {
    if (count == 0) origin = IsFinite(v) ? v : 0;
    v -= origin;
    sum += v;
    square += v * v;
    ++count;
  }

  OOC_MEMBER Moments About(double from) const {
    const Moments none{0, 0, static_cast<double>(count), 0, 0};
    return count == 0 ? none : MomentsAbout(origin, from, sum, square, none.count);
  }
};

template <class Out, class Stored>
OOC_HOST_DEVICE double ValueOf(Stored stored) {
  return static_cast<double>(Widen(Convert<Out>(Widen(stored))));
}

// Means in `entries` are relative to the channel's first element, so that a large mean is rounded
// once.
template <class Stored, class Out>
OOC_HOST_DEVICE void SumStored(const NormKernelArgs& args, const Grid& grid) {
  Moments* const entries = static_cast<Moments*>(grid.shared);
  const NormPlace channel = NormPlaceOf(args, args.row_dims, args.dims, grid.block);
  const Stored* const tile = static_cast<const Stored*>(args.tile) + channel.at;
  const double first_value = ValueOf<Out>(tile[0]);
  const double from = IsFinite(first_value) ? first_value : 0;
  OOC_THREADS(thread) {
    SumAbout own;
    OOC_KEEP_ROLLED
    for (unsigned first = thread; first < args.count; first += kSumInFlight * grid.threads) {
      Stored held[kSumInFlight] = {};
      OOC_UNROLL
      for (int i = 0; i < kSumInFlight; ++i) {
        const unsigned number = first + i * grid.threads;
        if (number < args.count) held[i] = tile[NormPlaceOf(args, 0, args.row_dims, number).at];
      }
      OOC_UNROLL
      for (int i = 0; i < kSumInFlight; ++i) {
        if (first + i * grid.threads >= args.count) break;
        own.Add(ValueOf<Out>(held[i]));
      }
    }
    entries[thread] = own.About(from);
  }
  OOC_BARRIER;
  for (unsigned half = grid.threads / 2; half > 0; half /= 2) {
    OOC_THREADS(thread) {
      if (thread < half) Merge(entries[thread + half], &entries[thread]);
    }
    OOC_BARRIER;
  }
  OOC_THREADS(thread) {
    if (thread == 0) {
      Moments all = entries[0];
      all.mean += from;
      Merge(all, static_cast<Moments*>(args.table) + channel.entry);
    }
  }
}

OOC_BODY void Normalize(const NormKernelArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.type, Stored, NormalizeStored<Stored>(args, grid);)
}

// What is rounded to a narrower type is float in its tile.
OOC_BODY void SumUp(const NormKernelArgs& args, const Grid& grid) {
  if (args.type == args.rounded) {
    OOC_WITH_ELEMENT(args.type, Stored, SumStored<Stored, Stored>(args, grid);)
  } else {
    OOC_WITH_ELEMENT(args.rounded, Out, SumStored<float, Out>(args, grid);)
  }
}

}  // namespace oocdnn::cuda
