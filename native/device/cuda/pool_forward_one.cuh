// PoolForwardPasses: what makes one element of z or of y, and its code for backward, out of a
// window of sums. Each sum is finished on the way.
#pragma once

#include "device/cuda/finish.cuh"

namespace oocdnn::cuda {

// The values of PoolMode.
enum { kNoPool = 0, kMaxPool, kAveragePool, kAverageInsidePool };

OOC_HOST_DEVICE int Larger(int a, int b) { return a > b ? a : b; }
OOC_HOST_DEVICE int Smaller(int a, int b) { return a < b ? a : b; }

// What a thread goes along: offsets are of its first element, steps from each to the next.
struct PoolForwardWalk {
  int y, y_step;  // of the window's first sum, which may not exist
  int z, z_step;
  int channel, channel_step;
  int first[3], w_step;  // the row of y on each axis where the window begins, and along W
};

template <class T>
struct PooledOne {
  T value;
  unsigned code;
  T slope = T(0);  // where slopes are saved
};

// Whether `v` wins a maximum from `best`: a NaN is larger than all, and the first of equals stays.
template <class T>
OOC_HOST_DEVICE bool Wins(T v, T best) {
  return !(v <= best) && best == best;
}

// Whether a gradient passes the activation where its result is `v`.
template <class T>
OOC_HOST_DEVICE bool Alive(const Clip<T>& clip, T v) {
  return !(v <= clip.low) && !(v >= clip.high);
}

// Of one element, on one axis: where its window begins, and which of its rows there are.
struct PoolForwardSpan {
  int first, begin, end;
};

OOC_HOST_DEVICE PoolForwardSpan SpanOf(const PoolForwardKernelArgs& args, int axis, int first) {
  return {first, Larger(first, args.begin[axis]),
          Smaller(first + args.window[axis], args.end[axis])};
}

// What an average divides by, along one axis.
OOC_HOST_DEVICE int CountedOf(const PoolForwardKernelArgs& args, int axis, int first) {
  const PoolForwardSpan span = SpanOf(args, axis, first);
  if (args.mode == kAverageInsidePool) return span.end - span.begin;
  return Smaller(first + args.window[axis], args.padded_end[axis]) - first;
}

// Of number i of the walk, or of the window so many columns behind.
OOC_HOST_DEVICE int CountedOf(const PoolForwardKernelArgs& args, const PoolForwardWalk& walk, int i,
                              int column) {
  return CountedOf(args, 0, walk.first[0]) * CountedOf(args, 1, walk.first[1]) *
         CountedOf(args, 2, walk.first[2] + i * walk.w_step + column);
}

// Any window, pool and finishing. A maker makes kPooled neighbours for each number of the walk, and
// holds those of kBatch at once: Load reads what number i needs, for Make to use after other reads.
// kInside: it is only for elements that exist, with all of their windows; kInPlace: z is y. Load
// is called for number 0 too where nothing is to be made: a value that is sometimes left out would
// cost a register in all of the kernel.
template <class Stored>
struct PoolForwardAny {
  using T = typename ComputeType<Stored>::Type;
  static constexpr int kPooled = 1, kBatch = 1, kMostBits = 16;
  static constexpr bool kInside = false, kInPlace = false, kSlopes = true;
  const PoolForwardKernelArgs& args;
  const Finishing<T> f;
  const Clip<T> clip;

  explicit OOC_MEMBER PoolForwardAny(const PoolForwardKernelArgs& given, const PoolForwardWalk&)
      : args(given),
        f{static_cast<const T*>(given.bias),
          static_cast<const T*>(given.scale),
          static_cast<T>(given.alpha),
          T(0),
          static_cast<T>(given.residual_alpha),
          static_cast<T>(given.parameter),
          static_cast<Activation>(given.activation)},
        clip(f.activation <= Activation::kClippedRelu
                 ? Clip<T>::Of(given.activation, static_cast<T>(given.parameter))
                 : Clip<T>::Of(static_cast<int>(Activation::kIdentity), T(0))) {}

  OOC_MEMBER void Load(const PoolForwardWalk&, int, int) {}

  OOC_MEMBER T At(int at, int channel) const {
    const Stored* const residual = static_cast<const Stored*>(args.residual);
    const bool has_residual = residual != nullptr;
    return SumOne<T>(f, Widen(static_cast<const Stored*>(args.y)[at]),
                     has_residual ? Widen(residual[at]) : T(0), T(0), has_residual, false, channel);
  }

  OOC_MEMBER T SlopeAt(T sum) const {
    return args.slope_type == kU8 ? T(0) : SlopeOf(f.activation, f.parameter, sum);
  }

  OOC_MEMBER PooledOne<T> Make(const PoolForwardWalk& walk, int i, int, int) const {
    const PoolForwardSpan span[3] = {SpanOf(args, 0, walk.first[0]), SpanOf(args, 1, walk.first[1]),
                                     SpanOf(args, 2, walk.first[2] + i * walk.w_step)};
    const bool largest = args.mode == kMaxPool;
    const int channel = walk.channel + i * walk.channel_step;
    T best = T(0), sum = T(0);  // the sum that the best is of
    int winner = -1;
    for (int d = span[0].begin - span[0].first; d < span[0].end - span[0].first; ++d) {
      for (int h = span[1].begin - span[1].first; h < span[1].end - span[1].first; ++h) {
        OOC_KEEP_ROLLED
        for (int w = span[2].begin - span[2].first; w < span[2].end - span[2].first; ++w) {
          const T u = At(walk.y + i * walk.y_step + d * args.y_stride[3] + h * args.y_stride[4] +
                             w * args.y_stride[5],
                         channel);
          const T v = Activate(f.activation, f.parameter, u);
          if (!largest) {
            best += v;
            sum = u;
          } else if (winner < 0 || Wins(v, best)) {
            best = v;
            sum = u;
            winner = (d * args.window[1] + h) * args.window[2] + w;
          }
        }
      }
    }
    const bool alive = Alive(clip, best);
    if (args.mode == kNoPool) return {best, alive ? 1u : 0u, SlopeAt(sum)};
    const int dead = args.window[0] * args.window[1] * args.window[2];
    if (largest) {
      return {best, static_cast<unsigned>(alive ? Larger(winner, 0) : dead),
              winner < 0 ? T(0) : SlopeAt(sum)};
    }
    return {best / static_cast<T>(CountedOf(args, walk, i, 0)), 0u};
  }
};

// A window of kH x kW that is unrolled, and a bias and an activation that cuts. Unless kBorder, all
// of the window exists. It makes kLanes neighbours at once: of channels where kAcross; along W
// otherwise, in steps of kStep. Of y vectors are read then, and what columns come before the first.
template <int kMode, int kH, int kW, bool kBorder, bool kAcross, int kLanes>
struct PoolForwardKnown {
  static constexpr int kTaps = kH * kW, kPooled = kLanes;
  static constexpr int kBatch = kTaps * kLanes > 8 ? 1 : kTaps > 1 ? 2 : 4;
  static constexpr int kMostBits = 4;
  static constexpr bool kInside = !kBorder, kInPlace = kMode == kNoPool, kSlopes = false;
  static constexpr int kStep = kW == 3 ? 2 : kW;
  static constexpr int kColumns = kAcross ? kW : (kLanes - 1) * kStep + kW;
  using Piece = Vector<float, 4>;
  const PoolForwardKernelArgs& args;
  const Clip<float> clip;
  float tap[kBatch][kLanes][kTaps], bias[kAcross ? 1 : kBatch][kAcross ? kLanes : 1];

  explicit OOC_MEMBER PoolForwardKnown(const PoolForwardKernelArgs& given,
                                       const PoolForwardWalk& walk)
      : args(given), clip(Clip<float>::Of(given.activation, static_cast<float>(given.parameter))) {
    if (kAcross) LoadBias(walk.channel, 0);
  }

  // To add -0 changes nothing, not even the sign of a zero.
  OOC_MEMBER void LoadBias(int channel, int slot) {
    const float* const biases = static_cast<const float*>(args.bias);
    OOC_UNROLL
    for (int l = 0; l < (kAcross ? kLanes : 1); ++l) {
      bias[slot][l] = biases != nullptr ? biases[channel + l] : -0.0f;
    }
  }

  OOC_MEMBER bool There(const PoolForwardWalk& walk, int i, int h, int w) const {
    if (!kBorder) return true;
    const int row = walk.first[1] + h, column = walk.first[2] + i * walk.w_step + w;
    return row >= args.begin[1] && row < args.end[1] && column >= args.begin[2] &&
           column < args.end[2];
  }

  // The window's first column, of a lane.
  OOC_MEMBER static constexpr int ColumnOf(int lane) { return kAcross ? 0 : lane * kStep; }

  OOC_MEMBER static Piece At(const float* from) {
    return BitCast<Piece>(LoadRaw<sizeof(Piece)>(reinterpret_cast<const char*>(from)));
  }

  OOC_MEMBER void Load(const PoolForwardWalk& walk, int i, int slot) {
    const float* const y = static_cast<const float*>(args.y) + (walk.y + i * walk.y_step);
    if (!kAcross) LoadBias(walk.channel + i * walk.channel_step, slot);
    OOC_UNROLL
    for (int h = 0; h < kH; ++h) {
      const float* const row = y + h * args.y_stride[4];
      if constexpr (kAcross) {
        LoadAcross(walk, i, slot, h, row);
      } else {
        LoadAlong(walk, i, slot, h, row);
      }
    }
  }

  OOC_MEMBER void LoadAlong(const PoolForwardWalk& walk, int i, int slot, int h, const float* row) {
    constexpr int kBefore = kLanes > 1 && !kBorder ? kColumns - 4 : kColumns;
    float column[kColumns];
    OOC_UNROLL
    for (int c = 0; c < kBefore; ++c) {
      column[c] = There(walk, i, h, c) ? row[c * args.y_stride[5]] : 0.0f;
    }
    if constexpr (kBefore < kColumns) {
      const Piece piece = At(row + kBefore);
      OOC_UNROLL
      for (int v = 0; v < 4; ++v) column[kBefore + v] = piece.at[v];
    }
    OOC_UNROLL
    for (int l = 0; l < kLanes; ++l) {
      OOC_UNROLL
      for (int w = 0; w < kW; ++w) tap[slot][l][h * kW + w] = column[ColumnOf(l) + w];
    }
  }

  OOC_MEMBER void LoadAcross(const PoolForwardWalk& walk, int i, int slot, int h,
                             const float* row) {
    OOC_UNROLL
    for (int w = 0; w < kW; ++w) {
      const Piece piece = There(walk, i, h, w) ? At(row + w * args.y_stride[5]) : Piece{};
      OOC_UNROLL
      for (int l = 0; l < kLanes; ++l) tap[slot][l][h * kW + w] = piece.at[l];
    }
  }

  OOC_MEMBER float SumOf(int slot, int lane, int t) const {
    return tap[slot][lane][t] + bias[kAcross ? 0 : slot][kAcross ? lane : 0];
  }

  OOC_MEMBER PooledOne<float> Make(const PoolForwardWalk& walk, int i, int slot, int lane) const {
    if (kMode == kNoPool) {
      const float v = Cut(clip, SumOf(slot, lane, 0));
      return {v, Alive(clip, v) ? 1u : 0u};
    }
    if (kMode == kMaxPool) return Largest(walk, i, slot, lane);
    float sum = 0.0f;
    OOC_UNROLL
    for (int t = 0; t < kTaps; ++t) {
      if (There(walk, i, t / kW, ColumnOf(lane) + t % kW)) sum += Cut(clip, SumOf(slot, lane, t));
    }
    const int counted = kBorder ? CountedOf(args, walk, i, ColumnOf(lane)) : kTaps;
    return {sum / static_cast<float>(counted), 0u};
  }

  // A cut keeps the order, so that it is enough to cut the largest sum. Only where none passes
  // are all equal, as zeros: then it is the first that stays, with its sign.
  OOC_MEMBER PooledOne<float> Largest(const PoolForwardWalk& walk, int i, int slot,
                                      int lane) const {
    float best = 0.0f, first = 0.0f;
    int winner = -1;
    OOC_UNROLL
    for (int t = 0; t < kTaps; ++t) {
      if (!There(walk, i, t / kW, ColumnOf(lane) + t % kW)) continue;
      const float v = SumOf(slot, lane, t);
      if (kBorder ? winner < 0 : t == 0) first = v;
      if ((kBorder ? winner < 0 : t == 0) || Wins(v, best)) {
        best = v;
        winner = t;
      }
    }
    const float v = Cut(clip, best <= clip.low ? first : best);
    return {v, static_cast<unsigned>(Alive(clip, v) ? Larger(winner, 0) : kTaps)};
  }
};

}  // namespace oocdnn::cuda
