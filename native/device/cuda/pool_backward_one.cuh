// The task of a thread of ooc_pool_backward, and the general pass, which computes each element of dy
// from the windows that contain it. Sums stay in registers.
#pragma once

#include "device/cuda/pool_forward_one.cuh"

namespace oocdnn::cuda {

// The values of Saved.
enum { kNothingSaved = 0, kWinnersSaved, kAliveSaved };

// What a thread makes: `count` elements along what it goes along. Offsets are of its first image,
// group and channel, and for dy of its first element; steps from each element to the next.
struct PoolBackwardTask {
  int y, y_step, z, z_step, bits, bits_step;
  int row[3], w_step;  // in dy's tile
  int count, lanes;    // lanes: channels that there are of those that it makes at once
};

// How many rows of dy the average of a row of dz has counted.
OOC_HOST_DEVICE int CountedBy(const PoolBackwardKernelArgs& args, int axis, int z) {
  const int first = args.lead[axis] + z * static_cast<int>(args.step[axis].divisor);
  const int end = first + args.window[axis];
  if (args.mode == kAveragePool) return Smaller(end, args.padded_end[axis]) - first;
  return Smaller(end, args.y_end[axis]) - Larger(first, args.y_begin[axis]);
}

OOC_HOST_DEVICE bool IsWanted(const PoolBackwardKernelArgs& args, int axis, int row) {
  return row >= args.begin[axis] && row < args.end[axis];
}

// Of one row of dy along an axis: which rows of dz's tile have windows with it, and its place in
// the first of them.
struct PoolBackwardSpan {
  int begin, end, place;
};

OOC_HOST_DEVICE PoolBackwardSpan WindowsOf(const PoolBackwardKernelArgs& args, int axis, int row) {
  if (!IsWanted(args, axis, row)) return {0, 0, 0};
  const int at = row - args.lead[axis], behind = at - args.window[axis];
  const Divisor& step = args.step[axis];
  const int reached = behind >= 0 ? static_cast<int>(Quotient(behind, step)) + 1 : 0;
  const int begun = at >= 0 ? static_cast<int>(Quotient(at, step)) + 1 : 0;
  const int first = Larger(reached, args.z_begin[axis]);
  return {first, Smaller(begun, args.z_end[axis]), at - first * static_cast<int>(step.divisor)};
}

// Where the row of bits begins that the tile has at d and h of dz's, or of dy's.
OOC_HOST_DEVICE int BitRow(const PoolBackwardKernelArgs& args, int d, int h) {
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

// The slope of an element of what is saved, and the code behind it; see Saving.
template <class T>
OOC_HOST_DEVICE T SlopeAt(const PoolBackwardKernelArgs& args, const unsigned char* element) {
  T value = T(0);
  OOC_WITH_ELEMENT(args.slope_type, Stored, {
    Stored slope;
    memcpy(&slope, element, sizeof slope);
    value = static_cast<T>(Widen(slope));
  })
  return value;
}
OOC_HOST_DEVICE unsigned CodeAt(const PoolBackwardKernelArgs& args, const unsigned char* element) {
  const int size = args.slope_type == kF64 ? 8 : args.slope_type == kF32 ? 4 : 2;
  unsigned code = 0;
  OOC_KEEP_ROLLED
  for (int byte = args.bits / 8 - 1; byte >= size; --byte) code = code << 8 | element[byte];
  return code;
}

// Any window and pool, and types of any sizes. A pass makes patches of so many rows, columns
// and channels, kBatch of them at once: Load reads what number i needs, for Put to use after other
// reads.
template <class T>
struct PoolBackwardAny {
  static constexpr int kBatch = 1, kRows = 1, kColumns = 1, kLanes = 1;
  const PoolBackwardKernelArgs& args;
  const PoolBackwardTask& task;

  explicit OOC_MEMBER PoolBackwardAny(const PoolBackwardKernelArgs& given,
                                      const PoolBackwardTask& of)
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
    const PoolBackwardSpan d = WindowsOf(args, 0, task.row[0]), h = WindowsOf(args, 1, task.row[1]),
                           w = WindowsOf(args, 2, column);
    if (d.begin >= d.end || h.begin >= h.end || w.begin >= w.end) return T(0);
    const bool sloped = args.slope_type != kU8, alive = args.saving == kAliveSaved;
    const unsigned char* const row =
        alive ? Bits(i) + BitRow(args, task.row[0], task.row[1]) : nullptr;
    if (alive && !sloped && BitsOf(row, column + args.to_bits[2], 1) == 0u) return T(0);
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
    if (!alive || !sloped || sum == T(0)) return sum;
    return sum * SlopeAt<T>(args, row + (column + args.to_bits[2]) * (args.bits / 8));
  }

  // From the windows of one row of dz, the first place of which is `in_row`.
  OOC_MEMBER T FromRow(int i, int zd, int zh, int in_row, const PoolBackwardSpan& w) const {
    const int row = task.z + i * task.z_step + zd * args.z_stride[3] + zh * args.z_stride[4];
    const bool averages = args.mode == kAveragePool || args.mode == kAverageInsidePool;
    const int counted = averages ? CountedBy(args, 0, zd) * CountedBy(args, 1, zh) : 0;
    const bool winners = args.saving == kWinnersSaved, sloped = args.slope_type != kU8;
    const unsigned char* const bits = winners ? Bits(i) + BitRow(args, zd, zh) : nullptr;
    T sum = T(0);
    OOC_KEEP_ROLLED
    for (int z = w.begin; z < w.end; ++z) {
      const int place = in_row + w.place - (z - w.begin) * static_cast<int>(args.step[2].divisor);
      const unsigned char* const element =
          winners && sloped ? bits + (z + args.to_bits[2]) * (args.bits / 8) : nullptr;
      if (winners && CodeOf(bits, element, z) != static_cast<unsigned>(place)) continue;
      const T factor = element != nullptr ? SlopeAt<T>(args, element) : T(1);
      const T value = factor * Dz(row + z * args.z_stride[5]);
      sum += averages ? value / static_cast<T>(counted * CountedBy(args, 2, z)) : value;
    }
    return sum;
  }

  OOC_MEMBER unsigned CodeOf(const unsigned char* bits, const unsigned char* element, int z) const {
    return element != nullptr ? CodeAt(args, element)
                              : BitsOf(bits, z + args.to_bits[2], args.bits);
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

}  // namespace oocdnn::cuda
