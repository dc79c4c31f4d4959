// The pass over a finished sum: scalars, scale, bias, residual, old output, activation; in the
// order of Epilogue, in float (double for f64 tiles), rounded once at the end.
#pragma once

#include "device/cuda/copy.cuh"

namespace oocdnn::cuda {

// The values of Activation.
enum { kIdentity = 0, kRelu, kClippedRelu, kElu, kSigmoid, kTanh, kSwish };

OOC_HOST_DEVICE float Exp(float v) { return expf(v); }
OOC_HOST_DEVICE double Exp(double v) { return exp(v); }
OOC_HOST_DEVICE float ExpMinus1(float v) { return expm1f(v); }
OOC_HOST_DEVICE double ExpMinus1(double v) { return expm1(v); }
OOC_HOST_DEVICE float TanH(float v) { return tanhf(v); }
OOC_HOST_DEVICE double TanH(double v) { return tanh(v); }

// NaN stays NaN in all of them.
template <class T>
OOC_HOST_DEVICE T Activate(int activation, T parameter, T v) {
  switch (activation) {
    case kRelu: return v < T(0) ? T(0) : v;
    case kClippedRelu: {
      const T low = v < T(0) ? T(0) : v;
      return low > parameter ? parameter : low;
    }
    case kElu: return v > T(0) ? v : parameter * ExpMinus1(v);
    case kSigmoid: return T(1) / (T(1) + Exp(-v));
    case kTanh: return TanH(v);
    case kSwish: return v * (T(1) / (T(1) + Exp(-(parameter * v))));
    default: return v;
  }
}

// The activations that only cut: below `low` becomes 0, above `high` becomes that. A limit that is
// no number cuts nothing.
template <class T>
struct Clip {
  T low, high;
  OOC_HOST_DEVICE Clip Of(int activation, T parameter) {
    const T none = BitCast<float>(0x7fc00000u);
    return {activation == kIdentity ? none : T(0), activation == kClippedRelu ? parameter : none};
  }
};

template <class T>
OOC_HOST_DEVICE T Cut(const Clip<T>& clip, T v) {
  const T low = v < clip.low ? T(0) : v;
  return low > clip.high ? clip.high : low;
}

template <class Stored>
struct ComputeType {
  using Type = float;
};
template <>
struct ComputeType<double> {
  using Type = double;
};

template <class T>
struct Finishing {
  const T *bias, *scale;
  T alpha, beta, residual_alpha, parameter;
  int activation;
};

template <class T>
OOC_HOST_DEVICE T FinishOne(const Finishing<T>& f, T v, T residual, T old, bool has_residual,
                            bool has_old, Long channel) {
  v = f.alpha * v;
  if (f.scale != nullptr) v = v * f.scale[channel];
  if (f.bias != nullptr) v = v + f.bias[channel];
  if (has_residual) v = v + f.residual_alpha * residual;
  if (has_old) v = v + f.beta * old;
  return Activate(f.activation, f.parameter, v);
}

template <class Stored, int kVector>
OOC_HOST_DEVICE void FinishTyped(const FinishKernelArgs& args, const Grid& grid) {
  using T = typename ComputeType<Stored>::Type;
  using Piece = Vector<Stored, kVector>;
  constexpr int kBytes = sizeof(Piece);
  const Finishing<T> f{static_cast<const T*>(args.bias), static_cast<const T*>(args.scale),
                       static_cast<T>(args.alpha),       static_cast<T>(args.beta),
                       static_cast<T>(args.residual_alpha), static_cast<T>(args.parameter),
                       args.activation};
  char* const out = static_cast<char*>(args.out);
  const char* const residual = static_cast<const char*>(args.residual);
  const char* const old = static_cast<const char*>(args.old);
  const Long channel_step = args.dim[0].channel / kVector;  // between the elements of a vector
  OOC_THREADS(thread) {
    for (unsigned number = grid.block * grid.threads + thread; number < args.count;
         number += grid.blocks * grid.threads) {
      unsigned rest = number;
      Long at = 0, channel = 0;
      OOC_UNROLL
      for (int d = 0; d < kCopyDims; ++d) {
        if (d >= args.dims) break;
        const Long index = Take(&rest, args.dim[d].extent);
        at += index * args.dim[d].stride;
        channel += index * args.dim[d].channel;
      }
      at *= sizeof(Stored);
      Piece values = BitCast<Piece>(LoadRaw<kBytes>(out + at));
      Piece add{}, before{};
      if (residual != nullptr) add = BitCast<Piece>(LoadRaw<kBytes>(residual + at));
      if (old != nullptr) before = BitCast<Piece>(LoadRaw<kBytes>(old + at));
      OOC_UNROLL
      for (int v = 0; v < kVector; ++v) {
        const T result = FinishOne<T>(f, static_cast<T>(Widen(values.at[v])),
                                      static_cast<T>(Widen(add.at[v])),
                                      static_cast<T>(Widen(before.at[v])), residual != nullptr,
                                      old != nullptr, channel + v * channel_step);
        values.at[v] = Convert<Stored>(result);
      }
      StoreRaw(BitCast<Raw<kBytes>>(values), out + at);
    }
  }
}

template <class Stored>
OOC_HOST_DEVICE void FinishStored(const FinishKernelArgs& args, const Grid& grid) {
  constexpr int kMost = 16 / sizeof(Stored);
  if (args.vector == kMost) {
    FinishTyped<Stored, kMost>(args, grid);
  } else {
    FinishTyped<Stored, 1>(args, grid);
  }
}

OOC_BODY void Finish(const FinishKernelArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.type, Stored, FinishStored<Stored>(args, grid);)
}

}  // namespace oocdnn::cuda
