// The pass over a finished sum: scalars, scale, bias, residual, old output, activation; in the
// order of Epilogue, in float (double for f64 tiles), rounded once at the end.
#pragma once

#include "device/cuda/copy.cuh"
#include "geom/activation.h"

namespace oocdnn::cuda {

// The activations that only cut: below `low` becomes 0, above `high` becomes that. A limit that is
// no number cuts nothing.
template <class T>
struct Clip {
  T low, high;
  OOC_HOST_DEVICE Clip Of(int activation, T parameter) {
    const T none = BitCast<float>(0x7fc00000u);
    const auto kind = static_cast<Activation>(activation);
    return {kind == Activation::kIdentity ? none : T(0),
            kind == Activation::kClippedRelu ? parameter : none};
  }
};

template <class T>
OOC_HOST_DEVICE T Cut(const Clip<T>& clip, T v) {
  const T low = v < clip.low ? T(0) : v;
  return low > clip.high ? clip.high : low;
}

template <class T>
struct Finishing {
  const T *bias, *scale;
  T alpha, beta, residual_alpha, parameter;
  Activation activation;
};

// Up to the activation.
template <class T>
OOC_HOST_DEVICE T SumOne(const Finishing<T>& f, T v, T residual, T old, bool has_residual,
                         bool has_old, Long channel) {
  v = f.alpha * v;
  if (f.scale != nullptr) v = v * f.scale[channel];
  if (f.bias != nullptr) v = v + f.bias[channel];
  if (has_residual) v = v + f.residual_alpha * residual;
  if (has_old) v = v + f.beta * old;
  return v;
}

template <class T>
OOC_HOST_DEVICE T FinishOne(const Finishing<T>& f, T v, T residual, T old, bool has_residual,
                            bool has_old, Long channel) {
  return Activate(f.activation, f.parameter,
                  SumOne(f, v, residual, old, has_residual, has_old, channel));
}

struct FinishPlace {
  Long at, channel;  // at: in elements
};

OOC_HOST_DEVICE FinishPlace PlaceOf(const FinishKernelArgs& args, unsigned number) {
  FinishPlace place{0, 0};
  OOC_UNROLL
  for (int d = 0; d < kCopyDims; ++d) {
    if (d >= args.dims) break;
    const Long index = Take(&number, args.dim[d].extent);
    place.at += index * args.dim[d].stride;
    place.channel += index * args.dim[d].channel;
  }
  return place;
}

// Finishers change the elements of one access. `step` is between their channels. Any finishing:
template <class Stored, int kVector>
struct FinishAny {
  using T = typename ComputeType<Stored>::Type;
  using Piece = Vector<Stored, kVector>;
  static constexpr int kInFlight = 1;
  const FinishKernelArgs& args;
  const Finishing<T> f;

  explicit OOC_MEMBER FinishAny(const FinishKernelArgs& given)
      : args(given),
        f{static_cast<const T*>(given.bias), static_cast<const T*>(given.scale),
          static_cast<T>(given.alpha),       static_cast<T>(given.beta),
          static_cast<T>(given.residual_alpha), static_cast<T>(given.parameter),
          static_cast<Activation>(given.activation)} {}

  OOC_MEMBER Piece At(const void* tile, Long at) const {
    if (tile == nullptr) return Piece{};
    return BitCast<Piece>(LoadRaw<sizeof(Piece)>(
        reinterpret_cast<const char*>(static_cast<const Stored*>(tile) + at)));
  }

  OOC_MEMBER void Apply(const FinishPlace& place, Long step, Piece* values) const {
    const Piece add = At(args.residual, place.at), before = At(args.old, place.at);
    OOC_UNROLL
    for (int v = 0; v < kVector; ++v) {
      const T result = FinishOne<T>(f, static_cast<T>(Widen(values->at[v])),
                                    static_cast<T>(Widen(add.at[v])),
                                    static_cast<T>(Widen(before.at[v])), args.residual != nullptr,
                                    args.old != nullptr, place.channel + v * step);
      values->at[v] = Convert<Stored>(result);
    }
  }
};

// A bias, and an activation that only cuts.
template <class Stored, int kVector>
struct FinishCut {
  using Piece = Vector<Stored, kVector>;
  static constexpr int kInFlight = 4;
  const float* const bias;
  const Clip<float> clip;

  explicit OOC_MEMBER FinishCut(const FinishKernelArgs& given)
      : bias(static_cast<const float*>(given.bias)),
        clip(Clip<float>::Of(given.activation, static_cast<float>(given.parameter))) {}

  OOC_MEMBER void Apply(const FinishPlace& place, Long step, Piece* values) const {
    // To add -0 changes nothing, not even the sign of a zero.
    float add = bias != nullptr ? bias[place.channel] : -0.0f;
    OOC_UNROLL
    for (int v = 0; v < kVector; ++v) {
      if (v > 0 && step != 0 && bias != nullptr) add = bias[place.channel + v * step];
      values->at[v] = Convert<Stored>(Cut(clip, Widen(values->at[v]) + add));
    }
  }
};

// A thread has kInFlight accesses on their way at once.
template <class Stored, int kVector, class Finisher>
OOC_HOST_DEVICE void FinishTyped(const FinishKernelArgs& args, const Grid& grid) {
  using Piece = Vector<Stored, kVector>;
  constexpr int kInFlight = Finisher::kInFlight, kBytes = sizeof(Piece);
  const Finisher finisher(args);
  const Long channel_step = args.dim[0].channel / kVector;  // between the elements of a vector
  const unsigned step = grid.blocks * grid.threads;
  char* const out = static_cast<char*>(args.out);
  OOC_THREADS(thread) {
    OOC_KEEP_ROLLED
    for (unsigned first = grid.block * grid.threads + thread; first < args.count;
         first += kInFlight * step) {
      FinishPlace place[kInFlight];
      Raw<kBytes> held[kInFlight];
      OOC_UNROLL
      for (int i = 0; i < kInFlight; ++i) {
        const unsigned number = first + i * step;
        place[i] = PlaceOf(args, number < args.count ? number : first);
        held[i] = LoadRaw<kBytes>(out + place[i].at * static_cast<Long>(sizeof(Stored)));
      }
      OOC_UNROLL
      for (int i = 0; i < kInFlight; ++i) {
        if (first + i * step >= args.count) break;
        Piece values = BitCast<Piece>(held[i]);
        finisher.Apply(place[i], channel_step, &values);
        StoreRaw(BitCast<Raw<kBytes>>(values),
                 out + place[i].at * static_cast<Long>(sizeof(Stored)));
      }
    }
  }
}

template <class Stored, int kVector>
OOC_HOST_DEVICE void FinishVector(const FinishKernelArgs& args, const Grid& grid) {
  if constexpr (sizeof(Stored) <= 4) {
    if (args.cuts != 0) {
      return FinishTyped<Stored, kVector, FinishCut<Stored, kVector>>(args, grid);
    }
  }
  FinishTyped<Stored, kVector, FinishAny<Stored, kVector>>(args, grid);
}

template <class Stored>
OOC_HOST_DEVICE void FinishStored(const FinishKernelArgs& args, const Grid& grid) {
  constexpr int kMost = 16 / sizeof(Stored);
  if (args.vector == kMost) return FinishVector<Stored, kMost>(args, grid);
  FinishVector<Stored, 1>(args, grid);
}

OOC_BODY void Finish(const FinishKernelArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.type, Stored, FinishStored<Stored>(args, grid);)
}

}  // namespace oocdnn::cuda
