// The passes of a normalisation: scale, shift and activation in place, rounded once; and the sums
// of what a tile holds and of its squares, one block a channel, in an order that the launch fixes.
#pragma once

#include "device/cuda/finish.cuh"

namespace oocdnn::cuda {

struct NormPlace {
  Long at, pair;
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
    place.pair += index * args.dim[d].channel;
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
        v = v * table[2 * place.pair];
        v = v + table[2 * place.pair + 1];
      }
      tile[place.at] = Convert<Stored>(Activate(args.activation, parameter, v));
    }
  }
}

template <class Stored, class Out>
OOC_HOST_DEVICE void SumStored(const NormKernelArgs& args, const Grid& grid) {
  SumPair* const sums = static_cast<SumPair*>(grid.shared);
  const NormPlace channel = NormPlaceOf(args, args.row_dims, args.dims, grid.block);
  const Stored* const tile = static_cast<const Stored*>(args.tile) + channel.at;
  OOC_THREADS(thread) {
    SumPair own{0, 0};
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
        const double v = static_cast<double>(Widen(Convert<Out>(Widen(held[i]))));
        own.sum += v;
        own.square += v * v;
      }
    }
    sums[thread] = own;
  }
  OOC_BARRIER;
  for (unsigned half = grid.threads / 2; half > 0; half /= 2) {
    OOC_THREADS(thread) {
      if (thread < half) {
        sums[thread].sum += sums[thread + half].sum;
        sums[thread].square += sums[thread + half].square;
      }
    }
    OOC_BARRIER;
  }
  OOC_THREADS(thread) {
    if (thread == 0) {
      double* const pair = static_cast<double*>(args.table) + 2 * channel.pair;
      pair[0] += sums[0].sum;
      pair[1] += sums[0].square;
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
