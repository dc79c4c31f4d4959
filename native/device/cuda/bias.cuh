// The bias's gradient: for each channel the chain of additions over images and positions (n o p q),
// in double, with the bits of one addition after the other and, mostly, the speed of memory.
//
// Additions that do not round may be done in any order. None rounds where the start and all
// elements are multiples of one power of two, the grain, and every sum on the way stays below 2^53
// grains. So ooc_bias_parts sums chunks in parallel, and ooc_bias_chain adds their sums one after
// the other for as long as it can show that nothing rounded. It takes the other chunks apart into
// pieces, for which there is a second rule: while the chain stays between two powers of two, its
// last digit, the unit, stays too, and an addition rounds just as the element alone would, to a
// multiple of the unit, but for ties. Where that does not help either, elements are added one by
// one.
#pragma once

#include "device/cuda/convert.cuh"
#include "device/cuda/copy.cuh"

namespace oocdnn::cuda {

constexpr double kGrains = 0x1p53;

OOC_HOST_DEVICE double Infinity() { return BitCast<double>(0x7ff0000000000000ull); }
OOC_HOST_DEVICE double Magnitude(double v) { return v < 0 ? -v : v; }

// The last binary digit of any element, as a part of its first one.
template <class In>
struct LastDigit {
  static constexpr double kOfFirst = 0x1p-23;
};
template <>
struct LastDigit<double> {
  static constexpr double kOfFirst = 0x1p-52;
};
template <>
struct LastDigit<Half> {
  static constexpr double kOfFirst = 0x1p-10;
};
template <>
struct LastDigit<BFloat> {
  static constexpr double kOfFirst = 0x1p-7;
};

// The order of magnitudes as a number, in which zero, that has no digits, is the last.
OOC_HOST_DEVICE unsigned RankOf(float v) { return (BitCast<unsigned>(v) & 0x7fffffffu) - 1; }
OOC_HOST_DEVICE unsigned long long RankOf(double v) {
  return (BitCast<unsigned long long>(v) & 0x7fffffffffffffffull) - 1;
}
OOC_HOST_DEVICE double OfRank(unsigned rank) {
  return rank == 0xffffffffu ? Infinity() : static_cast<double>(BitCast<float>(rank + 1));
}
OOC_HOST_DEVICE double OfRank(unsigned long long rank) {
  return rank == 0xffffffffffffffffull ? Infinity() : BitCast<double>(rank + 1);
}

OOC_HOST_DEVICE double Least(double a, double b) { return a < b ? a : b; }
OOC_HOST_DEVICE double Most(double a, double b) { return a > b ? a : b; }

OOC_HOST_DEVICE double PowerBelow(double v) {
  return BitCast<double>(BitCast<unsigned long long>(v) & 0x7ff0000000000000ull);
}

// `other` comes behind `part`.
OOC_HOST_DEVICE void Join(BiasPart* part, const BiasPart& other) {
  part->low = Least(part->low, part->sum + other.low);
  part->high = Most(part->high, part->sum + other.high);
  part->sum += other.sum;
  part->magnitude += other.magnitude;
  part->grain = Least(part->grain, other.grain);
}

// The greatest power of two that divides v.
OOC_HOST_DEVICE double GrainOf(double v) {
  const auto bits = BitCast<unsigned long long>(v);
  if (v == 0) return Infinity();
  if ((bits & 0x000fffffffffffffull) == 0) return Magnitude(v);
  return Magnitude(v - BitCast<double>(bits & (bits - 1)));
}

// Whether nothing rounds on the way from `sum` through the elements of `part`; never where one of
// them is no number. That magnitudes stay below shows that what `part` says was not rounded.
OOC_HOST_DEVICE bool Exact(double sum, const BiasPart& part) {
  const double most = kGrains * Least(part.grain, GrainOf(sum));
  return part.magnitude < kGrains * part.grain && sum + part.high < most && sum + part.low > -most;
}

// Whether the chain from `sum` through the elements of `part`, each rounded to a multiple of
// `unit`, has `unit` as its last digit all the way.
OOC_HOST_DEVICE bool KeepsUnit(double sum, const BiasPart& part, double unit) {
  const double reach = part.magnitude + part.magnitude * 0x1p-30 + kBiasChunk * unit;
  const double least = unit * 0x1p52, size = Magnitude(sum);
  return size - reach > least && size + reach < least + least;
}

// Where a chunk lies: its elements are side by side but where an image ends.
struct BiasChunk {
  Long from, in_plane;  // the first element, in the tensor and in its image's plane
  int count;
};

OOC_HOST_DEVICE BiasChunk BiasChunkAt(const BiasArgs& args, Long channel, Long chunk) {
  const Long first = chunk * kBiasChunk, left = args.count - first;
  const Long image = args.count < 0x7fffffff
                         ? static_cast<Long>(Quotient(static_cast<unsigned>(first), args.by_plane))
                         : first / args.plane;
  const Long in_plane = first - image * args.plane;
  return {(image * args.channels + channel) * args.plane + in_plane, in_plane,
          static_cast<int>(left < kBiasChunk ? left : kBiasChunk)};
}

OOC_HOST_DEVICE Long ElementAt(const BiasArgs& args, const BiasChunk& chunk, int at) {
  const Long reached = chunk.in_plane + at;
  const Long images =
      args.plane < kBiasChunk
          ? static_cast<Long>(Quotient(static_cast<unsigned>(reached), args.by_plane))
          : static_cast<Long>(reached >= args.plane);
  return chunk.from + at + images * (args.channels - 1) * args.plane;
}

// Accesses that a thread has on their way at once.
constexpr int kBiasInFlight = 4;

// Elements behind the chunk's last become zeros, which change no sum.
template <class In, int kVector>
OOC_HOST_DEVICE void StageVectors(const BiasArgs& args, const BiasChunk& chunk, unsigned thread,
                                  BiasSlot* slots) {
  constexpr int kBytes = sizeof(In) * kVector, kPiece = kBiasPiece * sizeof(In);
  const In* const dy = static_cast<const In*>(args.dy);
  char* const to = reinterpret_cast<char*>(slots);
  constexpr int kStep = kBiasThreads * kVector;
  for (int first = static_cast<int>(thread) * kVector; first < kBiasChunk;
       first += kBiasInFlight * kStep) {
    Raw<kBytes> held[kBiasInFlight] = {};
    OOC_UNROLL
    for (int i = 0; i < kBiasInFlight; ++i) {
      const int at = first + i * kStep;
      if (at >= chunk.count) break;
      held[i] = LoadRaw<kBytes>(reinterpret_cast<const char*>(dy + ElementAt(args, chunk, at)));
    }
    OOC_UNROLL
    for (int i = 0; i < kBiasInFlight; ++i) {
      const int byte = (first + i * kStep) * static_cast<int>(sizeof(In));
      if (first + i * kStep >= kBiasChunk) break;
      StoreRaw(held[i], to + byte + byte / kPiece * 16);
    }
  }
}

template <class In>
OOC_HOST_DEVICE void Stage(const BiasArgs& args, const BiasChunk& chunk, unsigned thread,
                           BiasSlot* slots) {
  if (args.vector == 1) {
    StageVectors<In, 1>(args, chunk, thread, slots);
  } else {
    StageVectors<In, 16 / sizeof(In)>(args, chunk, thread, slots);
  }
}

// A thread's own elements, one access at a time.
template <class In>
struct Own {
  static constexpr int kVector = 16 / sizeof(In), kSlots = kBiasPiece / kVector;
  using Values = Vector<In, kVector>;
};
template <class In>
OOC_HOST_DEVICE typename Own<In>::Values OwnValues(const BiasSlot* slots, unsigned piece, int i) {
  return BitCast<typename Own<In>::Values>(slots[piece * (Own<In>::kSlots + 1) + i]);
}

template <class In>
OOC_HOST_DEVICE BiasPart PieceOf(const BiasSlot* slots, unsigned piece) {
  double sum = 0.0, magnitude = 0.0;
  auto least = RankOf(Widen(In()));
  OOC_UNROLL
  for (int i = 0; i < Own<In>::kSlots; ++i) {
    const auto values = OwnValues<In>(slots, piece, i);
    OOC_UNROLL
    for (int v = 0; v < Own<In>::kVector; ++v) {
      const auto value = Widen(values.at[v]);
      const auto wide = static_cast<double>(value);
      sum += wide;
      magnitude += Magnitude(wide);
      const auto rank = RankOf(value);
      least = rank < least ? rank : least;
    }
  }
  return {sum, magnitude, -magnitude, magnitude,
          PowerBelow(OfRank(least)) * LastDigit<In>::kOfFirst};
}

// The sum of a piece's elements, each rounded to a multiple of `unit`; no number where one is a
// tie.
template <class In>
OOC_HOST_DEVICE double RoundedSum(const BiasSlot* slots, unsigned piece, double unit) {
  const double large = unit * 0x1.8p52;
  double sum = 0.0;
  OOC_UNROLL
  for (int i = 0; i < Own<In>::kSlots; ++i) {
    const auto values = OwnValues<In>(slots, piece, i);
    OOC_UNROLL
    for (int v = 0; v < Own<In>::kVector; ++v) {
      const auto wide = static_cast<double>(Widen(values.at[v]));
      const double rounded = (wide + large) - large;
      sum += Magnitude(wide - rounded) + Magnitude(wide - rounded) == unit ? Infinity() : rounded;
    }
  }
  return sum;
}

// Joins all parts into the first.
OOC_HOST_DEVICE void JoinAll(const Grid& grid, BiasPart* parts) {
  for (unsigned step = 1; step < kBiasThreads; step *= 4) {
    OOC_BARRIER;
    OOC_THREADS(thread) {
      const unsigned first = thread * step * 4;
      for (unsigned i = 1; i < 4 && first + i * step < kBiasThreads; ++i) {
        Join(&parts[first], parts[first + i * step]);
      }
    }
  }
}

template <class In>
OOC_HOST_DEVICE void PartsTyped(const BiasArgs& args, const Grid& grid) {
  constexpr int kSlots = kBiasThreads * (Own<In>::kSlots + 1);
  BiasSlot* const slots = static_cast<BiasSlot*>(grid.shared);
  BiasPart* const parts = reinterpret_cast<BiasPart*>(slots + kSlots);
  const unsigned count = static_cast<unsigned>(args.channels * args.chunks);
  for (unsigned number = grid.block; number < count; number += grid.blocks) {
    const unsigned channel = Quotient(number, args.by_chunks);
    const BiasChunk chunk = BiasChunkAt(args, channel, number - channel * args.chunks);
    OOC_THREADS(thread) { Stage<In>(args, chunk, thread, slots); }
    OOC_BARRIER;
    OOC_THREADS(thread) { parts[thread] = PieceOf<In>(slots, thread); }
    JoinAll(grid, parts);
    OOC_THREADS(thread) {
      if (thread == 0) args.parts[number] = parts[0];
    }
  }
}

OOC_BODY void BiasParts(const BiasArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.type, In, PartsTyped<In>(args, grid);)
}

// The chunks of a group from `next` on, up to the first that has to be taken apart; and the last
// digit of the sum before that.
OOC_HOST_DEVICE void AddChunks(BiasRoom* room, int count) {
  double sum = room->sum;
  int next = room->next;
  for (; next < count && Exact(sum, room->chunk[next]); ++next) sum += room->chunk[next].sum;
  room->sum = sum;
  room->next = next;
  room->unit = PowerBelow(sum) * 0x1p-52;
}

// Adds a part at once where a rule allows it.
OOC_HOST_DEVICE bool AddPart(double* sum, const BiasPart& part, double rounded, double unit) {
  if (Exact(*sum, part)) {
    *sum += part.sum;
    return true;
  }
  if (!KeepsUnit(*sum, part, unit) || !(Magnitude(rounded) < Infinity())) return false;
  *sum += rounded;
  return true;
}

template <class In>
OOC_HOST_DEVICE void AddElements(double* sum, const BiasSlot* slots, unsigned piece) {
  OOC_UNROLL
  for (int i = 0; i < Own<In>::kSlots; ++i) {
    const auto values = OwnValues<In>(slots, piece, i);
    OOC_UNROLL
    for (int v = 0; v < Own<In>::kVector; ++v) *sum += static_cast<double>(Widen(values.at[v]));
  }
}

template <class In>
OOC_HOST_DEVICE void AddGroups(const BiasSlot* slots, BiasRoom* room) {
  double sum = room->sum;
  const double unit = room->unit;
  for (unsigned group = 0; group < kBiasGroups; ++group) {
    if (AddPart(&sum, room->group[group], room->group_rounded[group], unit)) continue;
    for (unsigned i = group * kBiasGroup; i < (group + 1) * kBiasGroup; ++i) {
      if (AddPart(&sum, room->piece[i], room->rounded[i], unit)) continue;
      AddElements<In>(&sum, slots, i);
    }
  }
  room->sum = sum;
  ++room->next;
}

OOC_HOST_DEVICE void JoinGroup(BiasRoom* room, unsigned group) {
  const unsigned first = group * kBiasGroup;
  BiasPart joined = room->piece[first];
  double rounded = room->rounded[first];
  for (unsigned i = first + 1; i < first + kBiasGroup; ++i) {
    Join(&joined, room->piece[i]);
    rounded += room->rounded[i];
  }
  room->group[group] = joined;
  room->group_rounded[group] = rounded;
}

// The chunks [first, first + count) of one channel, count <= kBiasThreads.
template <class In>
OOC_HOST_DEVICE void ChainGroup(const BiasArgs& args, const Grid& grid, Long channel, Long first,
                                int count) {
  BiasRoom* const room = static_cast<BiasRoom*>(grid.shared);
  BiasSlot* const slots = reinterpret_cast<BiasSlot*>(room + 1);
  OOC_THREADS(thread) {
    if (thread == 0) room->next = 0;
    if (static_cast<int>(thread) < count) {
      const BiasPart unknown{0.0, Infinity(), 0.0, 0.0, 0.0};
      room->chunk[thread] =
          args.parts == nullptr ? unknown : args.parts[channel * args.chunks + first + thread];
    }
  }
  while (true) {
    OOC_BARRIER;
    OOC_THREADS(thread) {
      if (thread == 0) AddChunks(room, count);
    }
    OOC_BARRIER;
    if (room->next == count) break;
    const BiasChunk chunk = BiasChunkAt(args, channel, first + room->next);
    OOC_THREADS(thread) { Stage<In>(args, chunk, thread, slots); }
    OOC_BARRIER;
    OOC_THREADS(thread) {
      room->piece[thread] = PieceOf<In>(slots, thread);
      room->rounded[thread] = RoundedSum<In>(slots, thread, room->unit);
    }
    OOC_BARRIER;
    OOC_THREADS(thread) {
      if (thread < kBiasGroups) JoinGroup(room, thread);
    }
    OOC_BARRIER;
    OOC_THREADS(thread) {
      if (thread == 0) AddGroups<In>(slots, room);
    }
  }
  OOC_BARRIER;
}

template <class In>
OOC_HOST_DEVICE void ChainTyped(const BiasArgs& args, const Grid& grid) {
  BiasRoom* const room = static_cast<BiasRoom*>(grid.shared);
  for (Long channel = grid.block; channel < args.channels; channel += grid.blocks) {
    OOC_THREADS(thread) {
      if (thread == 0) room->sum = args.accumulate != 0 ? args.out[channel] : 0.0;
    }
    for (Long first = 0; first < args.chunks; first += kBiasThreads) {
      const Long left = args.chunks - first;
      ChainGroup<In>(args, grid, channel, first,
                     static_cast<int>(left < kBiasThreads ? left : kBiasThreads));
    }
    OOC_THREADS(thread) {
      if (thread == 0) args.out[channel] = room->sum;
    }
  }
}

OOC_BODY void BiasChain(const BiasArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.type, In, ChainTyped<In>(args, grid);)
}

}  // namespace oocdnn::cuda
