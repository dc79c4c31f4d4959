// The pass for windows, steps and types that are known when the kernel is compiled. It makes dy
// in patches: as many rows as the windows' step, and of each four columns, or where channels lie
// nearest as many columns as the step of four channels. So an element of dz and its bits are read
// once for all that they tell, and dy is written 16 bytes at a time.
#pragma once

#include "device/cuda/pool_backward_one.cuh"

namespace oocdnn::cuda {

// Sixteen places on, a patch's next row begins.
constexpr int kPatchRow = 16;

// So many bits of a row, from bit `first` on; bytes that are not there are 0. Without a branch, so
// that a thread waits for none of its reads before it has begun all of them.
template <class Word, int kBytes>
OOC_HOST_DEVICE Word WordAt(const unsigned char* row, int row_bytes, int first, int bits) {
  const int begin = first >> 3, end = Smaller((first + bits + 7) >> 3, row_bytes);
  Word word = 0;
  OOC_UNROLL
  for (int b = 0; b < kBytes; ++b) {
    const bool there = begin + b >= 0 && begin + b < end;
    const unsigned byte = there ? row[begin + b] : 0u;
    word |= static_cast<Word>(byte) << b * 8;
  }
  return word >> (first & 7);
}

template <bool kLong>
struct PatchWord {
  using Type = unsigned;
};
template <>
struct PatchWord<true> {
  using Type = unsigned long long;
};

// kVector: all vectors of dy, and where they are read as such those of dz, lie at multiples of
// their size, and none goes past an edge.
template <class Stored, int kMode, int kWindow, bool kAcross, bool kVector>
struct PoolBackwardPatch {
  static constexpr bool kWinners = kMode == kMaxPool, kAverages = kMode == kAveragePool;
  static constexpr int kStep = kWindow == 1 ? 1 : 2, kOverlap = kWindow - kStep;
  static constexpr int kRows = kStep, kColumns = kAcross ? kStep : kPoolBackwardVector;
  static constexpr int kLanes = kAcross ? kPoolBackwardVector : 1;
  static constexpr int kBatch = kWindow == 1 ? 4 : kWindow == 2 ? 2 : 1;
  // The windows that elements of a patch are in.
  static constexpr int kUp = 1 + kOverlap, kSteps = kColumns / kStep, kWide = kSteps + kOverlap;
  // Numbers that a thread reads together of a row of bits.
  static constexpr int kTogether = kAcross ? kPoolBackwardGroup : 1;
  static constexpr int kNumbers = kTogether * (kWinners ? kSteps : kColumns) + kOverlap;
  static constexpr int kMostBits = kNumbers * (kWindow == 3 ? 4 : kWinners ? 3 : 1);
  static constexpr int kBytes = (kMostBits + (kWindow == 3 ? 4 : 7) + 7) / 8;
  static constexpr int kWordRows = kWinners ? kUp : kRows, kWords = kAcross ? 1 : kBatch;
  using Word = typename PatchWord<(kMostBits > 24)>::Type;
  using Piece = Vector<Stored, kPoolBackwardVector>;

  const PoolBackwardKernelArgs& args;
  const PoolBackwardTask& task;
  const int bits, zh, zw;    // of a number; the first window of the first patch
  bool up[kUp], row[kRows];  // windows and rows that there are, and are wanted
  Word word[kWords][kWordRows][kLanes];
  Stored dz[kBatch][kUp][kWide][kLanes];

  explicit OOC_MEMBER PoolBackwardPatch(const PoolBackwardKernelArgs& given,
                                        const PoolBackwardTask& of)
      : args(given),
        task(of),
        bits(kWindow == 3 ? 4
             : kWinners   ? given.bits
                          : 1),
        zh(FirstWindow(1)),
        zw(FirstWindow(2)) {
    const int zd = task.row[0] - args.lead[0];
    const bool plane = IsWanted(args, 0, task.row[0]) && IsThere(0, zd);
    OOC_UNROLL
    for (int r = 0; r < kRows; ++r) row[r] = plane && IsWanted(args, 1, task.row[1] + r);
    OOC_UNROLL
    for (int u = 0; u < kUp; ++u) up[u] = IsThere(1, zh + u) && Reaches(u);
    if (kAcross) ReadBits(0, 0);
  }

  OOC_MEMBER int FirstWindow(int axis) const {
    const int at = task.row[axis] - args.lead[axis];
    return kStep == 1 ? at : (at - kOverlap) >> 1;
  }

  OOC_MEMBER bool IsThere(int axis, int z) const {
    return z >= args.z_begin[axis] && z < args.z_end[axis];
  }

  // Whether a row of windows has a row that is wanted; others may have no bits.
  OOC_MEMBER bool Reaches(int u) const {
    bool any = false;
    OOC_UNROLL
    for (int r = 0; r < kRows; ++r) any = any || (MayBeIn(u, r, false) && row[r]);
    return any;
  }

  OOC_MEMBER void ReadBits(int i, int slot) {
    const int first = ((kWinners ? zw : task.row[2]) + args.to_bits[2]) * bits;
    OOC_UNROLL
    for (int r = 0; r < kWordRows; ++r) {
      const int d = task.row[0] - (kWinners ? args.lead[0] : 0);
      const int at =
          task.bits + i * task.bits_step + BitRow(args, d, (kWinners ? zh : task.row[1]) + r);
      OOC_UNROLL
      for (int k = 0; k < kLanes; ++k) {
        const bool there = (kWinners ? up[r] : row[r] && up[0]) && (kVector || k < task.lanes);
        const int row_bytes = there ? args.row_bytes : 0;
        const Word bits_there = WordAt<Word, kBytes>(args.saved + at + k * args.saved_stride[2],
                                                     row_bytes, first, kNumbers * bits);
        word[slot][r][k] = kAverages && args.saved == nullptr ? ~Word(0) : bits_there;
      }
    }
  }

  OOC_MEMBER unsigned NumberOf(int i, int slot, int r, int place, int k) const {
    const int shift = kAcross ? (i * (kWinners ? kSteps : kColumns) + place) * bits : place * bits;
    return static_cast<unsigned>(word[kAcross ? 0 : slot][r][k] >> shift) & ((1u << bits) - 1u);
  }

  // What is not there gives nothing.
  OOC_MEMBER void Load(int i, int slot) {
    const int z_w = zw + (kAcross ? i : 0);
    OOC_UNROLL
    for (int u = 0; u < kUp; ++u) {
      const Stored* const from =
          static_cast<const Stored*>(args.dz) +
          (task.z + i * task.z_step + (task.row[0] - args.lead[0]) * args.z_stride[3] +
           (zh + u) * args.z_stride[4] + z_w * args.z_stride[5]);
      if constexpr (kVector && kWindow == 1 && !kAcross) {
        const Piece piece = up[u] && IsThere(2, z_w) ? At(from) : Piece{};
        OOC_UNROLL
        for (int v = 0; v < kWide; ++v) dz[slot][u][v][0] = piece.at[v];
      } else {
        OOC_UNROLL
        for (int v = 0; v < kWide; ++v) {
          LoadLanes(from + v * args.z_stride[5], up[u] && IsThere(2, z_w + v), &dz[slot][u][v]);
        }
      }
    }
    if (!kAcross) ReadBits(i, slot);
  }

  OOC_MEMBER static Piece At(const Stored* from) {
    return BitCast<Piece>(LoadRaw<sizeof(Piece)>(reinterpret_cast<const char*>(from)));
  }

  OOC_MEMBER void LoadLanes(const Stored* from, bool there, Stored (*to)[kLanes]) const {
    if constexpr (kVector && kAcross) {
      const Piece piece = there ? At(from) : Piece{};
      OOC_UNROLL
      for (int k = 0; k < kLanes; ++k) (*to)[k] = piece.at[k];
    } else {
      OOC_UNROLL
      for (int k = 0; k < kLanes; ++k) {
        (*to)[k] = there && k < task.lanes ? from[k * args.z_stride[2]] : Stored{};
      }
    }
  }

  // Whether an element `at` along an axis of a patch may be in window number `window` of it, which
  // begins one place further where the patch begins within a step.
  OOC_MEMBER static constexpr bool MayBeIn(int window, int at, bool within) {
    const int place = at + 2 * kOverlap - kStep * window;
    return (place >= 0 && place < kWindow) ||
           (within && kOverlap > 0 && place - 1 >= 0 && place - 1 < kWindow);
  }

  // Where in the patch the winner of a window is; not in it where there is none.
  OOC_MEMBER int WinnerOf(unsigned number, int u, int v) const {
    if (number >= kWindow * kWindow) return -kPatchRow * kPatchRow;
    const int place = static_cast<int>(number);
    const int in_h = kWindow == 3 ? place * 11 >> 5 : place >> 1, in_w = place - in_h * kWindow;
    const int down = kStep * (zh + u) + args.lead[1] - task.row[1];
    const int right = kStep * (zw + v) + args.lead[2] - task.row[2];
    return (down + in_h) * kPatchRow + right + in_w;
  }

  OOC_MEMBER float CountedIn(int z_w) const {
    if (!up[0] || !IsThere(2, z_w)) return 1.0f;
    return static_cast<float>(CountedBy(args, 1, zh) * CountedBy(args, 2, z_w));
  }

  using Patch = float[kRows][kColumns][kLanes];

  // What windows of one row and column of dz give to a patch.
  OOC_MEMBER void Give(int i, int slot, int u, int v, Patch* sum) const {
    const float counted = kAverages ? CountedIn(zw + (kAcross ? i : 0) + v) : 1.0f;
    OOC_UNROLL
    for (int k = 0; k < kLanes; ++k) {
      const float value = Widen(dz[slot][u][v][k]);
      const float share = kAverages ? value / counted : value;
      const int winner = kWinners ? WinnerOf(NumberOf(i, slot, u, v, k), u, v) : 0;
      OOC_UNROLL
      for (int r = 0; r < kRows; ++r) {
        OOC_UNROLL
        for (int c = 0; c < kColumns; ++c) {
          if (!MayBeIn(u, r, false) || !MayBeIn(v, c, !kAcross)) continue;
          const bool gets =
              kWinners ? winner == r * kPatchRow + c : NumberOf(i, slot, r, c, k) != 0u;
          if (gets) (*sum)[r][c][k] += share;
        }
      }
    }
  }

  OOC_MEMBER void Put(int i, int slot) const {
    Patch sum = {};
    OOC_UNROLL
    for (int u = 0; u < kUp; ++u) {
      OOC_UNROLL
      for (int v = 0; v < kWide; ++v) Give(i, slot, u, v, &sum);
    }
    Stored* const to = static_cast<Stored*>(args.dy) + (task.y + i * task.y_step);
    OOC_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const int h = task.row[1] + r;
      if (h >= 0 && h < args.rows[0]) Store(i, r, sum[r], to + r * args.y_stride[4]);
    }
  }

  // A row of a patch.
  OOC_MEMBER void Store(int i, int r, const float (&sum)[kColumns][kLanes], Stored* to) const {
    Stored value[kColumns][kLanes];
    const int first = task.row[2] + i * task.w_step;
    OOC_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const bool wanted = row[r] && IsWanted(args, 2, first + c);
      OOC_UNROLL
      for (int k = 0; k < kLanes; ++k) {
        value[c][k] = Convert<Stored>(wanted ? sum[c][k] : 0.0f);
      }
    }
    if constexpr (kVector && !kAcross) {
      StoreRaw(BitCast<Raw<sizeof(Piece)>>(value), reinterpret_cast<char*>(to));
    } else {
      OOC_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        if (first + c < 0 || first + c >= args.rows[1]) continue;
        StoreLanes(value[c], to + c * args.y_stride[5]);
      }
    }
  }

  OOC_MEMBER void StoreLanes(const Stored (&value)[kLanes], Stored* to) const {
    if constexpr (kVector && kAcross) {
      StoreRaw(BitCast<Raw<sizeof(Piece)>>(value), reinterpret_cast<char*>(to));
    } else {
      OOC_UNROLL
      for (int k = 0; k < kLanes; ++k) {
        if (k < task.lanes) to[k * args.y_stride[2]] = value[k];
      }
    }
  }
};

}  // namespace oocdnn::cuda
