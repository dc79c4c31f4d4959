// What a thread of ooc_dense and ooc_planes makes at once, and of which types.
#pragma once

#include "device/cuda/pool_forward_one.cuh"

namespace oocdnn::cuda {

// kPooled neighbours: the sums of type In that it reads for them, and out of these each element and
// its code.
template <class In, int kMode, bool kAcross, bool kSaves>
struct DenseWork {
  static constexpr bool kEach = kMode == kNoPool;
  static constexpr int kVector = kDenseBytes / sizeof(In);  // sums of a piece
  static constexpr int kAlong = kSaves ? kPoolForwardGroup : kEach ? kVector : kVector / 2;
  static constexpr int kPooled = kAcross ? kVector : kAlong;
  static constexpr int kTaps = kEach ? 1 : 4, kPieces = kPooled * kTaps / kVector;
  static constexpr int kRow = kPieces / 2;  // of windows along W: pieces in each of the two rows
  static constexpr int kInFlight = kPieces > 4 ? 1 : kPieces > 2 ? 2 : 4;
  static constexpr int kBias = kAcross ? kPooled : 1;
  using Piece = Vector<In, kVector>;
  struct Read {
    Piece piece[kPieces];
    float bias[kBias];
  };

  // To add -0 changes nothing, not even the sign of a zero.
  OOC_MEMBER static void LoadBias(const DenseArgs& args, unsigned channel, Read* read) {
    OOC_UNROLL
    for (int b = 0; b < kBias; ++b) {
      read->bias[b] = args.bias != nullptr ? args.bias[channel + b] : -0.0f;
    }
  }

  OOC_MEMBER static Piece At(const DenseArgs& args, unsigned piece) {
    const char* const y = static_cast<const char*>(args.y);
    return BitCast<Piece>(LoadRaw<kDenseBytes>(y + static_cast<Long>(piece) * kDenseBytes));
  }

  // Of vector `number`; the bias only where it goes by rows.
  OOC_MEMBER static void Load(const DenseArgs& args, unsigned number, Read* read) {
    if constexpr (kAcross) {
      LoadAcross(args, number, read);
    } else {
      LoadAlong(args, number, read);
    }
  }

  OOC_MEMBER static void LoadAcross(const DenseArgs& args, unsigned number, Read* read) {
    if (kEach) return LoadWindow(args, number, read);
    const unsigned pieces = args.channels.divisor;  // of a column
    const unsigned piece = Take(&number, args.channels), column = Take(&number, args.width);
    LoadWindow(args, number * 2 * args.y_row + column * 2 * pieces + piece, read);
  }

  // Across, from piece `first` of y on.
  OOC_MEMBER static void LoadWindow(const DenseArgs& args, unsigned first, Read* read) {
    OOC_UNROLL
    for (int t = 0; t < kTaps; ++t) {
      const unsigned row = t / 2 * args.y_row, column = t % 2 * args.channels.divisor;
      read->piece[t] = At(args, first + row + column);
    }
  }

  OOC_MEMBER static void LoadAlong(const DenseArgs& args, unsigned number, Read* read) {
    if constexpr (kEach) {
      OOC_UNROLL
      for (int p = 0; p < kPieces; ++p) read->piece[p] = At(args, number * kPieces + p);
    } else {
      const unsigned column = Take(&number, args.width);
      const unsigned first = number * 2 * args.y_row + column * kRow;
      OOC_UNROLL
      for (int p = 0; p < kRow; ++p) {
        read->piece[p] = At(args, first + p);
        read->piece[kRow + p] = At(args, first + args.y_row + p);
      }
    }
    unsigned row = Quotient(number, args.rows);
    LoadBias(args, Take(&row, args.channels), read);
  }

  // A tap of number `made`, with its bias.
  OOC_MEMBER static float TapOf(const Read& read, int made, int tap) {
    const int column = kEach || kAcross ? made : made * 2 + tap % 2;
    const int first = kEach ? 0 : kAcross ? tap : tap / 2 * kRow;  // piece
    const In sum = read.piece[first + column / kVector].at[column % kVector];
    return Widen(sum) + read.bias[kAcross ? made : 0];
  }

  OOC_MEMBER static PooledOne<float> Make(const Read& read, const Clip<float>& clip, int made) {
    const float first = TapOf(read, made, 0);
    if (kEach) {
      const float v = Cut(clip, first);
      return {v, Alive(clip, v) ? 1u : 0u};
    }
    if (kMode == kAveragePool) {
      float sum = 0.0f;
      OOC_UNROLL
      for (int t = 0; t < kTaps; ++t) sum += Cut(clip, TapOf(read, made, t));
      return {sum / static_cast<float>(kTaps), 0u};
    }
    float best = first;
    unsigned winner = 0;
    OOC_UNROLL
    for (int t = 1; t < kTaps; ++t) {
      const float v = TapOf(read, made, t);
      const bool wins = Wins(v, best);
      best = wins ? v : best;
      if (kSaves) winner = wins ? static_cast<unsigned>(t) : winner;
    }
    const float v = Cut(clip, best <= clip.low ? first : best);  // see PoolForwardKnown::Largest
    return {v, Alive(clip, v) ? winner : static_cast<unsigned>(kTaps)};
  }
};

template <class Z, int kPooled>
OOC_HOST_DEVICE void StoreDense(const Vector<Z, kPooled>& made, unsigned number, void* z) {
  constexpr int kMost = kDenseBytes / sizeof(Z), kAccess = kPooled < kMost ? kPooled : kMost;
  char* const to = static_cast<char*>(z) + static_cast<Long>(number) * (kPooled * sizeof(Z));
  OOC_UNROLL
  for (int first = 0; first < kPooled; first += kAccess) {
    Vector<Z, kAccess> part;
    OOC_UNROLL
    for (int m = 0; m < kAccess; ++m) part.at[m] = made.at[first + m];
    StoreRaw(BitCast<Raw<sizeof part>>(part), to + first * sizeof(Z));
  }
}

// Sums of 16 bits become elements of the same type, float sums those of any.
template <class Pass>
OOC_HOST_DEVICE void DenseTyped(const DenseArgs& args, const Grid& grid) {
  switch (args.y_type) {
    case kF16: return Pass::template Run<Half, Half>(args, grid);
    case kBF16: return Pass::template Run<BFloat, BFloat>(args, grid);
    default: break;
  }
  switch (args.z_type) {
    case kF16: return Pass::template Run<float, Half>(args, grid);
    case kBF16: return Pass::template Run<float, BFloat>(args, grid);
    default: return Pass::template Run<float, float>(args, grid);
  }
}

}  // namespace oocdnn::cuda
