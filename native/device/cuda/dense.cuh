// Finishing passes of dense tiles, see DenseArgs: the common ones, in few instructions. They make
// what ooc_finish and ooc_make make, bit by bit.
#pragma once

#include "device/cuda/make_one.cuh"

namespace oocdnn::cuda {

// What a thread makes at once, kMade neighbours: the sums of type In that it reads for that, and
// out of them each element and its bits.
template <class In, int kMode, bool kAcross, bool kSaves>
struct DenseWork {
  static constexpr bool kEach = kMode == kNoPool;
  static constexpr int kVector = kDenseBytes / sizeof(In);  // sums of a piece
  static constexpr int kMade = kSaves ? kMakeGroup : kEach || kAcross ? kVector : kVector / 2;
  static constexpr int kTaps = kEach ? 1 : 4, kPieces = kMade * kTaps / kVector;
  static constexpr int kRow = kPieces / 2;  // of windows along W: pieces in each of the two rows
  static constexpr int kInFlight = kPieces > 4 ? 1 : kPieces > 2 ? 2 : 4;
  static constexpr int kBias = kAcross ? kMade : 1;
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
    if constexpr (kEach) {
      read->piece[0] = At(args, number);
    } else {
      const unsigned pieces = args.channels.divisor;  // of a column
      const unsigned piece = Take(&number, args.channels), column = Take(&number, args.width);
      const unsigned first = number * 2 * args.y_row + column * 2 * pieces + piece;
      OOC_UNROLL
      for (int h = 0; h < 2; ++h) {
        read->piece[h * 2] = At(args, first + h * args.y_row);
        read->piece[h * 2 + 1] = At(args, first + h * args.y_row + pieces);
      }
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

  OOC_MEMBER static MadeOne<float> Make(const Read& read, const Clip<float>& clip, int made) {
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
    const float v = Cut(clip, best <= clip.low ? first : best);  // see MakeKnown::Largest
    return {v, Alive(clip, v) ? winner : static_cast<unsigned>(kTaps)};
  }
};

template <class Z, int kMade>
OOC_HOST_DEVICE void StoreDense(const Vector<Z, kMade>& made, unsigned number, void* z) {
  constexpr int kMost = kDenseBytes / sizeof(Z), kAccess = kMade < kMost ? kMade : kMost;
  char* const to = static_cast<char*>(z) + static_cast<Long>(number) * (kMade * sizeof(Z));
  OOC_UNROLL
  for (int first = 0; first < kMade; first += kAccess) {
    Vector<Z, kAccess> part;
    OOC_UNROLL
    for (int m = 0; m < kAccess; ++m) part.at[m] = made.at[first + m];
    StoreRaw(BitCast<Raw<sizeof part>>(part), to + first * sizeof(Z));
  }
}

template <class Z, class Work, bool kSaves>
OOC_HOST_DEVICE void MakeDense(const DenseArgs& args, const typename Work::Read& read,
                               const Clip<float>& clip, unsigned number) {
  Vector<Z, Work::kMade> made;
  unsigned bits = 0;
  OOC_UNROLL
  for (int m = 0; m < Work::kMade; ++m) {
    const MadeOne<float> one = Work::Make(read, clip, m);
    made.at[m] = Convert<Z>(one.value);
    if (kSaves) bits |= one.code << m * args.bits;
  }
  StoreDense<Z, Work::kMade>(made, number, args.z);
  if (!kSaves) return;
  unsigned char* const to = args.saved + static_cast<Long>(number) * args.bits;
  OOC_UNROLL
  for (int byte = 0; byte < 3; ++byte) {
    if (byte < args.bits) to[byte] = static_cast<unsigned char>(bits >> byte * 8);
  }
}

template <class In, class Z, int kMode, bool kAcross, bool kSaves>
OOC_HOST_DEVICE void DenseOf(const DenseArgs& args, unsigned own) {
  using Work = DenseWork<In, kMode, kAcross, kSaves>;
  constexpr int kInFlight = Work::kInFlight;
  const Clip<float> clip = Clip<float>::Of(args.activation, static_cast<float>(args.parameter));
  typename Work::Read read[kInFlight];
  if (kAcross) {
    unsigned rest = own;
    Work::LoadBias(args, Take(&rest, args.channels) * Work::kVector, &read[0]);
    OOC_UNROLL
    for (int i = 1; i < kInFlight; ++i) {
      OOC_UNROLL
      for (int b = 0; b < Work::kBias; ++b) read[i].bias[b] = read[0].bias[b];
    }
  }
  OOC_KEEP_ROLLED
  for (unsigned first = own; first < args.count; first += kInFlight * args.step) {
    OOC_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      const unsigned number = first + i * args.step;
      Work::Load(args, number < args.count ? number : first, &read[i]);
    }
    OOC_UNROLL
    for (int i = 0; i < kInFlight; ++i) {
      const unsigned number = first + i * args.step;
      if (number < args.count) MakeDense<Z, Work, kSaves>(args, read[i], clip, number);
    }
  }
}

template <class In, class Z, bool kAcross, bool kSaves>
OOC_HOST_DEVICE void DenseOfKind(const DenseArgs& args, unsigned own) {
  switch (args.kind) {
    case kMakeMax2: return DenseOf<In, Z, kMaxPool, kAcross, kSaves>(args, own);
    case kMakeAverage2:
      if (!kSaves) DenseOf<In, Z, kAveragePool, kAcross, false>(args, own);
      return;
    default: return DenseOf<In, Z, kNoPool, kAcross, kSaves>(args, own);
  }
}

template <class In, class Z>
OOC_HOST_DEVICE void DenseTo(const DenseArgs& args, unsigned own) {
  if (args.across != 0) return DenseOfKind<In, Z, true, false>(args, own);
  if (args.saved == nullptr) return DenseOfKind<In, Z, false, false>(args, own);
  DenseOfKind<In, Z, false, true>(args, own);
}

// Sums of 16 bits become elements of the same type, float sums those of any.
OOC_HOST_DEVICE void DenseFrom(const DenseArgs& args, unsigned own) {
  switch (args.y_type) {
    case kF16: return DenseTo<Half, Half>(args, own);
    case kBF16: return DenseTo<BFloat, BFloat>(args, own);
    default: break;
  }
  switch (args.z_type) {
    case kF16: return DenseTo<float, Half>(args, own);
    case kBF16: return DenseTo<float, BFloat>(args, own);
    default: return DenseTo<float, float>(args, own);
  }
}

OOC_BODY void Dense(const DenseArgs& args, const Grid& grid) {
  OOC_THREADS(thread) {
    const unsigned own = grid.block * grid.threads + thread;
    if (own < args.step) DenseFrom(args, own);
  }
}

}  // namespace oocdnn::cuda
