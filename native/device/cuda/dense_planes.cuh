// Finishing passes of dense tiles whose channels lie nearest, where z or bits lie in planes, see
// DensePlanes.
#pragma once

#include "device/cuda/dense_work.cuh"

namespace oocdnn::cuda {

// Of a block's piece of work: the image, the first piece of a column, and the first group of the
// image's.
struct PlanesPlace {
  unsigned image, piece, group;
};

OOC_HOST_DEVICE PlanesPlace PlanesPlaceAt(const DensePlanes& planes, unsigned number) {
  const unsigned chunk = Take(&number, planes.chunks), run = Take(&number, planes.runs);
  return {number, chunk * planes.lanes.divisor, run * planes.slots.divisor};
}

// A block's memory: of each of its channels a row of elements of z, two by two, and one of the bits
// of groups. The rows of all lanes' first channels come first, then those of their second ones; and
// rows have odd extents: so neighbouring threads reach other banks.
template <class In, class Z, int kMode, bool kSaves, bool kTurns>
struct PlanesWork {
  using Work = DenseWork<In, kMode, true, kSaves>;
  using Output = Vector<Z, Work::kVector>;
  using Pair = Vector<Z, 2>;
  static constexpr int kVector = Work::kVector, kBatch = Work::kEach ? 4 : 2;
  static constexpr unsigned kPairs = kPoolForwardGroup / 2;        // of a group
  static constexpr unsigned kAccess = kDenseBytes / sizeof(Pair);  // pairs that are written at once
  static constexpr unsigned kBits = Work::kEach ? 1 : 3;
  const DenseArgs& args;
  const DensePlanes& planes;
  const PlanesPlace place;
  const unsigned rows, pairs, words;  // the latter two: from row to row
  Pair* const elements;
  unsigned* const bits;

  explicit OOC_MEMBER PlanesWork(const DenseArgs& given, const PlanesPlace& at, void* shared)
      : args(given),
        planes(given.planes),
        place(at),
        rows(planes.lanes.divisor * kVector),
        pairs(planes.slots.divisor * kPairs + 1),
        words(planes.slots.divisor + 1),
        elements(static_cast<Pair*>(shared)),
        bits(reinterpret_cast<unsigned*>(elements + (kTurns ? rows * pairs : 0))) {}

  // A group of the channels of one lane.
  OOC_MEMBER void PoolForwardGroup(unsigned thread, const Clip<float>& clip) const {
    unsigned slot = thread;
    const unsigned lane = Take(&slot, planes.lanes), piece = place.piece + lane;
    if (slot >= planes.slots.divisor || place.group + slot >= planes.groups) return;
    const unsigned group = place.image * planes.groups + place.group + slot;
    const unsigned pieces = args.channels.divisor;
    typename Work::Read read[kBatch];
    Work::LoadBias(args, piece * kVector, &read[0]);
    OOC_UNROLL
    for (int i = 1; i < kBatch; ++i) {
      OOC_UNROLL
      for (int b = 0; b < kVector; ++b) read[i].bias[b] = read[0].bias[b];
    }
    const unsigned from = FirstOf(group) + piece, to = group * kPoolForwardGroup * pieces + piece;
    unsigned code[kVector] = {};
    OOC_KEEP_ROLLED
    for (unsigned first = 0; first < kPoolForwardGroup; first += kBatch) {
      OOC_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const unsigned column = (first + i) * (Work::kEach ? 1 : 2);
        Work::LoadWindow(args, from + column * pieces, &read[i]);
      }
      Output made[kBatch];
      OOC_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        OOC_UNROLL
        for (int m = 0; m < kVector; ++m) {
          const PooledOne<float> one = Work::Make(read[i], clip, m);
          made[i].at[m] = Convert<Z>(one.value);
          code[m] |= one.code << (first + i) * kBits;
        }
        if (!kTurns) StoreDense<Z, kVector>(made[i], to + (first + i) * pieces, args.z);
      }
      if (kTurns) KeepPairs(made, lane, slot * kPairs + first / 2);
    }
    if (kSaves) KeepBits(code, lane, slot);
  }

  // The piece of y with which the windows of a group of z begin, in the first channels.
  OOC_MEMBER unsigned FirstOf(unsigned group) const {
    const unsigned pieces = args.channels.divisor;
    if (Work::kEach) return group * kPoolForwardGroup * pieces;
    const unsigned column = Take(&group, args.width) * kPoolForwardGroup;
    return group * 2 * args.y_row + column * 2 * pieces;
  }

  OOC_MEMBER void KeepPairs(const Output (&made)[kBatch], unsigned lane, unsigned first) const {
    OOC_UNROLL
    for (int m = 0; m < kVector; ++m) {
      Pair* const row = elements + (m * planes.lanes.divisor + lane) * pairs + first;
      OOC_UNROLL
      for (int i = 0; i < kBatch; i += 2) {
        const Pair two{{made[i].at[m], made[i + 1].at[m]}};
        StoreRaw(BitCast<Raw<sizeof two>>(two), reinterpret_cast<char*>(row + i / 2));
      }
    }
  }

  OOC_MEMBER void KeepBits(const unsigned (&code)[kVector], unsigned lane, unsigned slot) const {
    OOC_UNROLL
    for (int m = 0; m < kVector; ++m) {
      bits[(m * planes.lanes.divisor + lane) * words + slot] = code[m];
    }
  }

  // The group of its channel's plane with which a row begins.
  OOC_MEMBER unsigned GroupOf(unsigned row) const {
    const unsigned lane = Take(&row, planes.lanes), pieces = args.channels.divisor;
    const unsigned channel = (place.piece + lane) * kVector + row;
    return (place.image * pieces * kVector + channel) * planes.groups + place.group;
  }

  OOC_MEMBER void PutElements(unsigned thread, unsigned threads) const {
    constexpr unsigned kOfGroup = kPairs / kAccess;  // accesses
    const unsigned across = planes.slots.divisor * kOfGroup;
    for (unsigned number = thread; number < rows * across; number += threads) {
      const unsigned row = Quotient(number / kOfGroup, planes.slots), at = number - row * across;
      if (place.group + at / kOfGroup >= planes.groups) continue;
      Vector<Pair, kAccess> part;
      OOC_UNROLL
      for (unsigned p = 0; p < kAccess; ++p) part.at[p] = elements[row * pairs + at * kAccess + p];
      const Long to = GroupOf(row) * kOfGroup + at;
      StoreRaw(BitCast<Raw<kDenseBytes>>(part), static_cast<char*>(args.z) + to * kDenseBytes);
    }
  }

  // Four bytes of a row, from byte `first` on.
  OOC_MEMBER unsigned WordOf(unsigned row, unsigned first) const {
    const unsigned* const group = bits + row * words + first / kBits;
    if (kBits == 1) return group[0] | group[1] << 8 | group[2] << 16 | group[3] << 24;
    const unsigned before = first % kBits * 8;
    return group[0] >> before | group[1] << (kBits * 8 - before);
  }

  OOC_MEMBER void PutBits(unsigned thread, unsigned threads) const {
    const unsigned left = planes.groups - place.group, slots = planes.slots.divisor;
    const unsigned bytes = (left < slots ? left : slots) * kBits;
    for (unsigned number = thread; number < rows * planes.words.divisor; number += threads) {
      const unsigned row = Quotient(number, planes.words);
      const unsigned first = (number - row * planes.words.divisor) * sizeof(unsigned);
      if (first >= bytes) continue;
      const unsigned word = WordOf(row, first);
      unsigned char* const to = args.saved + (static_cast<Long>(GroupOf(row)) * kBits + first);
      if (planes.whole_words != 0) {
        *reinterpret_cast<unsigned*>(to) = word;
        continue;
      }
      OOC_UNROLL
      for (unsigned b = 0; b < sizeof word; ++b) {
        if (first + b < bytes) to[b] = static_cast<unsigned char>(word >> b * 8);
      }
    }
  }
};

template <class In, class Z, int kMode, bool kSaves, bool kTurns>
OOC_HOST_DEVICE void PlanesOf(const DenseArgs& args, const Grid& grid) {
  using Work = PlanesWork<In, Z, kMode, kSaves, kTurns>;
  const Clip<float> clip = Clip<float>::Of(args.activation, static_cast<float>(args.parameter));
  OOC_KEEP_ROLLED
  for (unsigned number = grid.block; number < args.count; number += grid.blocks) {
    const Work work(args, PlanesPlaceAt(args.planes, number), grid.shared);
    OOC_THREADS(thread) { work.PoolForwardGroup(thread, clip); }
    OOC_BARRIER;
    OOC_THREADS(thread) {
      if (kTurns) work.PutElements(thread, grid.threads);
      if (kSaves) work.PutBits(thread, grid.threads);
    }
    OOC_BARRIER;
  }
}

// Elements by themselves have bits only where they stay in place.
struct PlanesPass {
  template <class In, class Z>
  OOC_MEMBER static void Run(const DenseArgs& args, const Grid& grid) {
    const bool saves = args.saved != nullptr, turns = args.planes.turns != 0;
    switch (args.kind) {
      case kPoolForwardMax2:
        if (!saves) return PlanesOf<In, Z, kMaxPool, false, true>(args, grid);
        if (turns) return PlanesOf<In, Z, kMaxPool, true, true>(args, grid);
        return PlanesOf<In, Z, kMaxPool, true, false>(args, grid);
      case kPoolForwardAverage2: return PlanesOf<In, Z, kAveragePool, false, true>(args, grid);
      default:
        if (saves) return PlanesOf<In, Z, kNoPool, true, false>(args, grid);
        return PlanesOf<In, Z, kNoPool, false, true>(args, grid);
    }
  }
};

OOC_BODY void Planes(const DenseArgs& args, const Grid& grid) {
  DenseTyped<PlanesPass>(args, grid);
}

}  // namespace oocdnn::cuda
