// Restorers: what makes elements of dy, one by one, out of the windows that have them. Nothing is
// added up in memory.
#pragma once

#include "device/cuda/make_one.cuh"

namespace oocdnn::cuda {

// The values of Saved.
enum { kNothingSaved = 0, kWinnersSaved, kAliveSaved };

// What a thread makes: `count` elements along what it goes along. Offsets are of its first image,
// group and channel, and for dy of its first element; steps from each element to the next.
struct RestoreTask {
  int y, y_step, z, z_step, bits, bits_step;
  int row[3], w_step;  // in dy's tile
  int count;
};

// How many rows of dy the average of a row of dz has counted.
OOC_HOST_DEVICE int CountedBy(const RestoreKernelArgs& args, int axis, int z) {
  const int first = args.lead[axis] + z * static_cast<int>(args.step[axis].divisor);
  const int end = first + args.window[axis];
  if (args.mode == kAveragePool) return Smaller(end, args.padded_end[axis]) - first;
  return Smaller(end, args.y_end[axis]) - Larger(first, args.y_begin[axis]);
}

OOC_HOST_DEVICE bool IsWanted(const RestoreKernelArgs& args, int axis, int row) {
  return row >= args.begin[axis] && row < args.end[axis];
}

// Of one row of dy along an axis: which rows of dz's tile have windows with it, and its place in
// the first of them.
struct RestoreSpan {
  int begin, end, place;
};

OOC_HOST_DEVICE RestoreSpan WindowsOf(const RestoreKernelArgs& args, int axis, int row) {
  if (!IsWanted(args, axis, row)) return {0, 0, 0};
  const int at = row - args.lead[axis], behind = at - args.window[axis];
  const Divisor& step = args.step[axis];
  const int reached = behind >= 0 ? static_cast<int>(Quotient(behind, step)) + 1 : 0;
  const int begun = at >= 0 ? static_cast<int>(Quotient(at, step)) + 1 : 0;
  const int first = Larger(reached, args.z_begin[axis]);
  return {first, Smaller(begun, args.z_end[axis]), at - first * static_cast<int>(step.divisor)};
}

// Where the row of bits begins that the tile has at d and h of dz's, or of dy's.
OOC_HOST_DEVICE int BitRow(const RestoreKernelArgs& args, int d, int h) {
  return (d + args.to_bits[0]) * args.saved_stride[3] +
         (h + args.to_bits[1]) * args.saved_stride[4];
}

// A number of any width.
OOC_HOST_DEVICE unsigned BitsOf(const unsigned char* row, int element, int bits) {
  const int first = element * bits, end = first + bits;
  unsigned value = 0;
  OOC_KEEP_ROLLED
  for (int byte = first / 8; byte * 8 < end; ++byte) {
    const int shift = byte * 8 - first;
    const unsigned eight = row[byte];
    value |= shift >= 0 ? eight << shift : eight >> -shift;
  }
  return value & ((1u << bits) - 1u);
}

// Any window and pool, and types of any sizes. A restorer holds kBatch elements at once: Load reads
// what number i needs, for Put to use after other reads.
template <class T>
struct RestoreAny {
  static constexpr int kBatch = 1;
  const RestoreKernelArgs& args;
  const RestoreTask& task;

  explicit OOC_MEMBER RestoreAny(const RestoreKernelArgs& given, const RestoreTask& of)
      : args(given), task(of) {}

  OOC_MEMBER void Load(int, int) {}

  OOC_MEMBER void Put(int i, int) const {
    const T value = Sum(i);
    OOC_WITH_ELEMENT(
        args.dy_type, Stored,
        static_cast<Stored*>(args.dy)[task.y + i * task.y_step] = Convert<Stored>(value);)
  }

  OOC_MEMBER T Sum(int i) const {
    const int column = task.row[2] + i * task.w_step;
    const RestoreSpan d = WindowsOf(args, 0, task.row[0]), h = WindowsOf(args, 1, task.row[1]),
                      w = WindowsOf(args, 2, column);
    if (d.begin >= d.end || h.begin >= h.end || w.begin >= w.end) return T(0);
    if (args.saving == kAliveSaved) {
      const int at = BitRow(args, task.row[0], task.row[1]);
      if (BitsOf(Bits(i) + at, column + args.to_bits[2], 1) == 0u) return T(0);
    }
    T sum = T(0);
    OOC_KEEP_ROLLED
    for (int zd = d.begin; zd < d.end; ++zd) {
      const int in_d = d.place - (zd - d.begin) * static_cast<int>(args.step[0].divisor);
      OOC_KEEP_ROLLED
      for (int zh = h.begin; zh < h.end; ++zh) {
        const int in_h = h.place - (zh - h.begin) * static_cast<int>(args.step[1].divisor);
        sum += FromRow(i, zd, zh, (in_d * args.window[1] + in_h) * args.window[2], w);
      }
    }
    return sum;
  }

  // From the windows of one row of dz, the first place of which is `in_row`.
  OOC_MEMBER T FromRow(int i, int zd, int zh, int in_row, const RestoreSpan& w) const {
    const int row = task.z + i * task.z_step + zd * args.z_stride[3] + zh * args.z_stride[4];
    const bool averages = args.mode == kAveragePool || args.mode == kAverageInsidePool;
    const int counted = averages ? CountedBy(args, 0, zd) * CountedBy(args, 1, zh) : 0;
    const bool winners = args.saving == kWinnersSaved;
    const unsigned char* const bits = winners ? Bits(i) + BitRow(args, zd, zh) : nullptr;
    T sum = T(0);
    OOC_KEEP_ROLLED
    for (int z = w.begin; z < w.end; ++z) {
      const int place = in_row + w.place - (z - w.begin) * static_cast<int>(args.step[2].divisor);
      if (winners && BitsOf(bits, z + args.to_bits[2], args.bits) != static_cast<unsigned>(place)) {
        continue;
      }
      const T value = Dz(row + z * args.z_stride[5]);
      sum += averages ? value / static_cast<T>(counted * CountedBy(args, 2, z)) : value;
    }
    return sum;
  }

  OOC_MEMBER const unsigned char* Bits(int i) const {
    return args.saved + task.bits + i * task.bits_step;
  }

  OOC_MEMBER T Dz(int at) const {
    T value = T(0);
    OOC_WITH_ELEMENT(args.dz_type, Stored,
                     value = static_cast<T>(Widen(static_cast<const Stored*>(args.dz)[at]));)
    return value;
  }
};

// A window of kWindow x kWindow in steps of kStep, and tiles of dz and dy of one type. On each axis
// kOn of them may have an element.
template <class Stored, int kMode, int kWindow, int kStep, bool kAcross>
struct RestoreKnown {
  static constexpr int kOn = (kWindow + kStep - 1) / kStep, kTaps = kOn * kOn;
  static constexpr int kBatch = kTaps > 1 ? 1 : 4;
  static constexpr bool kWinners = kMode == kMaxPool, kAverages = kMode == kAveragePool;

  // What one window has for an element, and where: its number in dz, and the number of bits that
  // begins in that byte, `more` bytes before its last. The element's is to be `wanted`.
  struct Tap {
    int z, byte, more, shift;
    unsigned wanted;
    float counted;
  };

  const RestoreKernelArgs& args;
  const RestoreTask& task;
  const int bits;
  Tap known[kTaps];  // unless kAcross, of all elements
  Stored dz[kBatch][kTaps];
  unsigned near[kBatch][kTaps];  // bytes that hold the bits

  explicit OOC_MEMBER RestoreKnown(const RestoreKernelArgs& given, const RestoreTask& of)
      : args(given),
        task(of),
        bits(kWindow == 3 ? 4
             : kWinners   ? given.bits
                          : 1) {
    OOC_UNROLL
    for (int t = 0; t < kTaps && !kAcross; ++t) known[t] = MakeTap(0, t);
  }

  OOC_MEMBER Tap TapOf(int i, int t) const { return kAcross ? MakeTap(i, t) : known[t]; }

  // The element's window number `back` before the last, along H or W.
  OOC_MEMBER int Window(int axis, int row, int back) const {
    const int at = row - args.lead[axis];
    return (kStep == 2 ? at >> 1 : at) - back;
  }

  OOC_MEMBER bool There(int axis, int row, int z) const {
    const int place = row - args.lead[axis] - z * kStep;
    return place < (axis == 0 ? 1 : kWindow) && z >= args.z_begin[axis] && z < args.z_end[axis] &&
           IsWanted(args, axis, row);
  }

  // Along D windows have one row. Where the window does not exist, some number is read, and is none
  // that is wanted.
  OOC_MEMBER Tap MakeTap(int i, int t) const {
    const int d = task.row[0], h = task.row[1], w = task.row[2] + i * task.w_step;
    const int zd = d - args.lead[0], zh = Window(1, h, t / kOn), zw = Window(2, w, t % kOn);
    if (!There(0, d, zd) || !There(1, h, zh) || !There(2, w, zw)) return {0, 0, 0, 0, ~0u, 1.0f};
    const int in_h = h - args.lead[1] - zh * kStep, in_w = w - args.lead[2] - zw * kStep;
    const int first = ((kWinners ? zw : w) + args.to_bits[2]) * bits;
    return {zd * args.z_stride[3] + zh * args.z_stride[4] + zw * args.z_stride[5],
            BitRow(args, kWinners ? zd : d, kWinners ? zh : h) + first / 8,
            first % 8 + bits > 8 ? 1 : 0,
            first % 8,
            kWinners ? static_cast<unsigned>(in_h * kWindow + in_w) : 1u,
            kAverages ? static_cast<float>(CountedBy(args, 1, zh) * CountedBy(args, 2, zw)) : 1.0f};
  }

  OOC_MEMBER void Load(int i, int slot) {
    OOC_UNROLL
    for (int t = 0; t < kTaps; ++t) {
      const Tap tap = TapOf(i, t);
      dz[slot][t] = static_cast<const Stored*>(args.dz)[task.z + i * task.z_step + tap.z];
      near[slot][t] = 1u << tap.shift;
      if (kAverages && args.saved == nullptr) continue;
      const unsigned char* const byte = args.saved + (task.bits + i * task.bits_step + tap.byte);
      near[slot][t] = byte[0];
      if (kWinners && kWindow == 2) near[slot][t] |= static_cast<unsigned>(byte[tap.more]) << 8;
    }
  }

  OOC_MEMBER void Put(int i, int slot) const {
    float sum = 0.0f;
    OOC_UNROLL
    for (int t = 0; t < kTaps; ++t) {
      const Tap tap = TapOf(i, t);
      const unsigned number = near[slot][t] >> tap.shift & ((1u << bits) - 1u);
      const float value = Widen(dz[slot][t]);
      if (number == tap.wanted) sum += kAverages ? value / tap.counted : value;
    }
    static_cast<Stored*>(args.dy)[task.y + i * task.y_step] = Convert<Stored>(sum);
  }
};

}  // namespace oocdnn::cuda
