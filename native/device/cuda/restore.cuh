// A tile of dy from one of dz and saved bits, see RestoreArgs of the device. A thread makes one
// element at a time, and gathers from the windows that have it: nothing is added up in memory.
#pragma once

#include "device/cuda/make.cuh"

namespace oocdnn::cuda {

// The values of Saved.
enum { kNothingSaved = 0, kWinnersSaved, kAliveSaved };

// Of one row along an axis: which rows of dz's tile have windows with it, and its place in the
// first of them.
struct RestoreSpan {
  int begin, end, place;
};

OOC_HOST_DEVICE RestoreSpan WindowsOf(const RestoreKernelArgs& args, int axis, int row) {
  if (row < args.begin[axis] || row >= args.end[axis]) return {0, 0, 0};
  const int at = row - args.lead[axis], step = args.step[axis], window = args.window[axis];
  const int first = Larger(at >= window ? (at - window) / step + 1 : 0, args.z_begin[axis]);
  const int end = Smaller(at >= 0 ? at / step + 1 : 0, args.z_end[axis]);
  return {first, end, at - first * step};
}

// How many rows of dy the average of a row of dz has counted.
OOC_HOST_DEVICE int CountedBy(const RestoreKernelArgs& args, int axis, int z) {
  const int first = args.lead[axis] + z * args.step[axis], end = first + args.window[axis];
  if (args.mode == kAveragePool) return Smaller(end, args.padded_end[axis]) - first;
  return Smaller(end, args.y_end[axis]) - Larger(first, args.y_begin[axis]);
}

OOC_HOST_DEVICE unsigned BitsOf(const unsigned char* row, int element, int bits) {
  const int first = element * bits, end = first + bits;
  unsigned value = 0;
  for (int byte = first / 8; byte * 8 < end; ++byte) {
    const int shift = byte * 8 - first;
    const unsigned eight = row[byte];
    value |= shift >= 0 ? eight << shift : eight >> -shift;
  }
  return value & ((1u << bits) - 1u);
}

// The row of bits of a tile at these rows of it.
OOC_HOST_DEVICE const unsigned char* BitRowOf(const RestoreKernelArgs& args, const int (&at)[5]) {
  return args.saved + at[0] * args.saved_stride[0] + at[1] * args.saved_stride[1] +
         at[2] * args.saved_stride[2] + (at[3] + args.to_bits[0]) * args.saved_stride[3] +
         (at[4] + args.to_bits[1]) * args.saved_stride[4];
}

template <class T>
OOC_HOST_DEVICE T LoadDz(const RestoreKernelArgs& args, int at) {
  T value = T(0);
  OOC_WITH_ELEMENT(args.dz_type, Stored,
                   value = static_cast<T>(Widen(static_cast<const Stored*>(args.dz)[at]));)
  return value;
}

// From the windows of one row of dz; `at` is where that lies, `in_row` the first place of it.
template <class T>
OOC_HOST_DEVICE T FromRow(const RestoreKernelArgs& args, const int (&at)[5], int in_row,
                          const RestoreSpan& w, int counted) {
  const int row = at[0] * args.z_stride[0] + at[1] * args.z_stride[1] + at[2] * args.z_stride[2] +
                  at[3] * args.z_stride[3] + at[4] * args.z_stride[4];
  const unsigned char* const bits = args.saving == kWinnersSaved ? BitRowOf(args, at) : nullptr;
  T sum = T(0);
  for (int z = w.begin; z < w.end; ++z) {
    const int place = in_row + w.place - (z - w.begin) * args.step[2];
    if (bits != nullptr &&
        BitsOf(bits, z + args.to_bits[2], args.bits) != static_cast<unsigned>(place)) {
      continue;
    }
    const T value = LoadDz<T>(args, row + z * args.z_stride[5]);
    sum += counted > 0 ? value / static_cast<T>(counted * CountedBy(args, 2, z)) : value;
  }
  return sum;
}

template <class T>
OOC_HOST_DEVICE T RestoreOne(const RestoreKernelArgs& args, const int (&index)[kCopyDims]) {
  const RestoreSpan d = WindowsOf(args, 0, index[3]), h = WindowsOf(args, 1, index[4]),
                    w = WindowsOf(args, 2, index[5]);
  if (d.begin >= d.end || h.begin >= h.end || w.begin >= w.end) return T(0);
  if (args.saving == kAliveSaved) {
    const int at[5] = {index[0], index[1], index[2], index[3], index[4]};
    if (BitsOf(BitRowOf(args, at), index[5] + args.to_bits[2], 1) == 0u) return T(0);
  }
  const bool averages = args.mode == kAveragePool || args.mode == kAverageInsidePool;
  T sum = T(0);
  for (int zd = d.begin; zd < d.end; ++zd) {
    const int in_d = d.place - (zd - d.begin) * args.step[0];
    for (int zh = h.begin; zh < h.end; ++zh) {
      const int in_h = h.place - (zh - h.begin) * args.step[1];
      const int at[5] = {index[0], index[1], index[2], zd, zh};
      const int counted = averages ? CountedBy(args, 0, zd) * CountedBy(args, 1, zh) : 0;
      const int in_row = (in_d * args.window[1] + in_h) * args.window[2];
      sum += FromRow<T>(args, at, in_row, w, counted);
    }
  }
  return sum;
}

template <class T>
OOC_HOST_DEVICE void RestoreTyped(const RestoreKernelArgs& args, const Grid& grid) {
  OOC_THREADS(thread) {
    for (unsigned number = grid.block * grid.threads + thread; number < args.count;
         number += grid.blocks * grid.threads) {
      unsigned rest = number;
      int index[kCopyDims] = {};
      int at = 0;
      OOC_UNROLL
      for (int i = 0; i < kCopyDims; ++i) {
        const int taken = static_cast<int>(Take(&rest, args.extent[i]));
        OOC_UNROLL
        for (int d = 0; d < kCopyDims; ++d) {  // so that no index is looked up in memory
          if (args.order[i] == d) index[d] = taken;
        }
        at += taken * args.y_stride[i];
      }
      const T value = RestoreOne<T>(args, index);
      OOC_WITH_ELEMENT(args.dy_type, Stored,
                       static_cast<Stored*>(args.dy)[at] = Convert<Stored>(value);)
    }
  }
}

OOC_BODY void Restore(const RestoreKernelArgs& args, const Grid& grid) {
  if (args.dz_type == kF64) return RestoreTyped<double>(args, grid);
  RestoreTyped<float>(args, grid);
}

}  // namespace oocdnn::cuda
