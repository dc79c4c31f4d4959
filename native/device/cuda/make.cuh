// The pass over finished sums that makes z, or bits for backward, or both, in one read of the tile;
// see Made. A thread makes one element at a time: its window of sums is finished on the way.
#pragma once

#include "device/cuda/finish.cuh"

namespace oocdnn::cuda {

// The values of PoolMode.
enum { kNoPool = 0, kMaxPool, kAveragePool, kAverageInsidePool };

// A window that is known when the kernel is compiled is unrolled; of any other, extents are 0.
template <int kDepth, int kHeight, int kWidth>
struct Window {
  static constexpr int kD = kDepth, kH = kHeight, kW = kWidth;
};

// Of one element: where its window begins on each axis, and which of its rows there are.
struct MakeSpan {
  int first, begin, end;
};

OOC_HOST_DEVICE int Larger(int a, int b) { return a > b ? a : b; }
OOC_HOST_DEVICE int Smaller(int a, int b) { return a < b ? a : b; }

OOC_HOST_DEVICE MakeSpan SpanOf(const MakeKernelArgs& args, int axis, int row) {
  const int first = args.first[axis] + row * args.step[axis];
  return {first, Larger(first, args.begin[axis]),
          Smaller(first + args.window[axis], args.end[axis])};
}

// What an average divides by, along one axis.
OOC_HOST_DEVICE int CountedOf(const MakeKernelArgs& args, int axis, const MakeSpan& span) {
  if (args.mode == kAverageInsidePool) return span.end - span.begin;
  return Smaller(span.first + args.window[axis], args.padded_end[axis]) - span.first;
}

// Calls visit(offset of a sum, place in the window) for those there are, in row-major order.
template <class Window, class Visit>
OOC_HOST_DEVICE void ForWindow(const MakeKernelArgs& args, const MakeSpan (&span)[3], int at,
                               const Visit& visit) {
  if (Window::kW > 0) {
    OOC_UNROLL
    for (int d = 0; d < Window::kD; ++d) {
      OOC_UNROLL
      for (int h = 0; h < Window::kH; ++h) {
        OOC_UNROLL
        for (int w = 0; w < Window::kW; ++w) {
          const int rows[3] = {span[0].first + d, span[1].first + h, span[2].first + w};
          const bool there = rows[0] >= span[0].begin && rows[0] < span[0].end &&
                             rows[1] >= span[1].begin && rows[1] < span[1].end &&
                             rows[2] >= span[2].begin && rows[2] < span[2].end;
          if (!there) continue;
          visit(at + rows[0] * args.y_stride[3] + rows[1] * args.y_stride[4] +
                    rows[2] * args.y_stride[5],
                (d * Window::kH + h) * Window::kW + w);
        }
      }
    }
    return;
  }
  for (int d = span[0].begin; d < span[0].end; ++d) {
    for (int h = span[1].begin; h < span[1].end; ++h) {
      const int row = at + d * args.y_stride[3] + h * args.y_stride[4];
      const int place = ((d - span[0].first) * args.window[1] + h - span[1].first) * args.window[2];
      for (int w = span[2].begin; w < span[2].end; ++w) {
        visit(row + w * args.y_stride[5], place + w - span[2].first);
      }
    }
  }
}

// Whether a gradient passes the activation where its result is `v`.
template <class T>
OOC_HOST_DEVICE bool Alive(int activation, T parameter, T v) {
  if (activation == kRelu) return !(v <= T(0));
  if (activation == kClippedRelu) return !(v <= T(0)) && !(v >= parameter);
  return true;
}

template <class T>
struct MadeOne {
  T value;
  unsigned code;
};

template <class T, class Window>
OOC_HOST_DEVICE MadeOne<T> MakeOne(const MakeKernelArgs& args, const Finishing<T>& f,
                                   const MakeSpan (&span)[3], int at, int channel) {
  const T* const y = static_cast<const T*>(args.y);
  const T* const residual = static_cast<const T*>(args.residual);
  const bool has_residual = residual != nullptr, largest = args.mode == kMaxPool;
  T best = T(0);
  int winner = -1;
  ForWindow<Window>(args, span, at, [&](int place, int number) {
    const T v = FinishOne<T>(f, y[place], has_residual ? residual[place] : T(0), T(0), has_residual,
                             false, channel);
    if (!largest) {
      best += v;
    } else if (winner < 0 || v > best || (v != v && best == best)) {
      best = v;
      winner = number;
    }
  });
  const bool alive = Alive<T>(f.activation, f.parameter, best);
  if (args.mode == kNoPool) return {best, alive ? 1u : 0u};
  const int dead = args.window[0] * args.window[1] * args.window[2];
  if (largest) return {best, static_cast<unsigned>(alive ? Larger(winner, 0) : dead)};
  const int counted =
      CountedOf(args, 0, span[0]) * CountedOf(args, 1, span[1]) * CountedOf(args, 2, span[2]);
  return {best / static_cast<T>(counted), 0u};
}

template <class T>
OOC_HOST_DEVICE void StoreMade(const MakeKernelArgs& args, int at, T value) {
  OOC_WITH_ELEMENT(args.z_type, Stored, static_cast<Stored*>(args.z)[at] = Convert<Stored>(value);)
}

// Where a group lies: the indices of its first element. c, or n, is the first that is looped over.
struct MakeGroup {
  int n, g, c, d, h, w;
};

OOC_HOST_DEVICE MakeGroup GroupAt(const MakeKernelArgs& args, unsigned number) {
  MakeGroup group{};
  if (args.across != 0) {
    group.c = Take(&number, args.channels);
    group.g = Take(&number, args.groups);
  }
  group.w = Take(&number, args.width) * kMakeGroup;
  group.h = Take(&number, args.height);
  group.d = Take(&number, args.depth);
  if (args.across == 0) {
    group.c = Take(&number, args.channels);
    group.g = Take(&number, args.groups);
  }
  group.n = Take(&number, args.images);
  if (args.loop == 0) group.n *= args.loops;
  if (args.loop == 2) group.c *= args.loops;
  return group;
}

// The offset of a group's first byte; -1 where none of its elements has bits.
OOC_HOST_DEVICE int BitsAt(const MakeKernelArgs& args, const MakeGroup& group) {
  if (group.d >= args.saved_rows[0] || group.h >= args.saved_rows[1]) return -1;
  return group.n * args.saved_stride[0] + group.g * args.saved_stride[1] +
         group.c * args.saved_stride[2] + group.d * args.saved_stride[3] +
         group.h * args.saved_stride[4] + group.w / kMakeGroup * args.bits;
}

template <class T, class Window>
OOC_HOST_DEVICE void MakeElements(const MakeKernelArgs& args, unsigned base, unsigned thread,
                                  MakeRoom* room) {
  const unsigned in_block = args.across != 0 ? thread % kMakeGroups : thread / kMakeGroup;
  const int element =
      static_cast<int>(args.across != 0 ? thread / kMakeGroups : thread % kMakeGroup);
  const bool exists = base + in_block < args.count;
  const MakeGroup group = exists ? GroupAt(args, base + in_block) : MakeGroup{};
  const int looped = args.loop == 0 ? group.n : group.c;
  const int loops = exists ? Smaller(args.loops, args.loop_extent - looped) : 0;
  if (args.saved != nullptr && element == 0) {
    room->bits_at[in_block] = exists ? BitsAt(args, group) : -1;
    room->bytes_left[in_block] = args.row_bytes - group.w / kMakeGroup * args.bits;
    room->loops[in_block] = loops;
  }
  const int w = group.w + element;
  const Finishing<T> f{static_cast<const T*>(args.bias),
                       static_cast<const T*>(args.scale),
                       static_cast<T>(args.alpha),
                       T(0),
                       static_cast<T>(args.residual_alpha),
                       static_cast<T>(args.parameter),
                       args.activation};
  const MakeSpan span[3] = {SpanOf(args, 0, group.d), SpanOf(args, 1, group.h), SpanOf(args, 2, w)};
  const bool there = group.d < args.rows[0] && group.h < args.rows[1] && w < args.rows[2];
  const bool has_bits = w >= args.bits_begin && w < args.bits_end;
  int y = group.n * args.y_stride[0] + group.g * args.y_stride[1] + group.c * args.y_stride[2];
  int z = group.n * args.z_stride[0] + group.g * args.z_stride[1] + group.c * args.z_stride[2] +
          group.d * args.z_stride[3] + group.h * args.z_stride[4] + w * args.z_stride[5];
  int channel = group.g * args.group_channels + group.c;
  for (int i = 0; i < loops; ++i) {
    MadeOne<T> made{T(0), 0u};
    if (there) made = MakeOne<T, Window>(args, f, span, y, channel);
    if (w < args.z_width) StoreMade<T>(args, z, made.value);
    if (args.saved != nullptr) {
      room->code[(i * kMakeGroups + in_block) * kMakeGroup + element] =
          static_cast<unsigned short>(has_bits ? made.code : 0u);
    }
    y += args.loop == 0 ? args.y_stride[0] : args.y_stride[2];
    z += args.loop == 0 ? args.z_stride[0] : args.z_stride[2];
    channel += args.loop == 2 ? 1 : 0;
  }
}

// Byte number `byte` of a group: its elements follow each other from the lowest bit on.
OOC_HOST_DEVICE unsigned char ByteOf(const MakeRoom& room, int bits, unsigned group, int byte) {
  const unsigned short* const code = room.code + group * kMakeGroup;
  unsigned value = 0;
  for (int element = byte * 8 / bits; element < kMakeGroup; ++element) {
    const int shift = element * bits - byte * 8;
    if (shift >= 8) break;
    value |= shift >= 0 ? static_cast<unsigned>(code[element]) << shift
                        : static_cast<unsigned>(code[element]) >> -shift;
  }
  return static_cast<unsigned char>(value);
}

OOC_HOST_DEVICE void StoreBits(const MakeKernelArgs& args, unsigned thread, const MakeRoom& room) {
  const unsigned bits = static_cast<unsigned>(args.bits);
  const int step = args.loop == 0 ? args.saved_stride[0] : args.saved_stride[2];
  const unsigned bytes = static_cast<unsigned>(args.loops) * kMakeGroups * bits;
  for (unsigned number = thread; number < bytes; number += kMakeThreads) {
    const unsigned group = number / bits, in_block = group % kMakeGroups;
    const int byte = static_cast<int>(number % bits), loop = static_cast<int>(group / kMakeGroups);
    const bool there = room.bits_at[in_block] >= 0 && byte < room.bytes_left[in_block] &&
                       loop < room.loops[in_block];
    if (!there) continue;
    args.saved[room.bits_at[in_block] + loop * step + byte] = ByteOf(room, args.bits, group, byte);
  }
}

template <class T, class Window>
OOC_HOST_DEVICE void MakeTyped(const MakeKernelArgs& args, const Grid& grid) {
  MakeRoom* const room = static_cast<MakeRoom*>(grid.shared);
  for (unsigned base = grid.block * kMakeGroups; base < args.count;
       base += grid.blocks * kMakeGroups) {
    OOC_THREADS(thread) { MakeElements<T, Window>(args, base, thread, room); }
    if (args.saved == nullptr) continue;
    OOC_BARRIER;
    OOC_THREADS(thread) { StoreBits(args, thread, *room); }
    OOC_BARRIER;
  }
}

template <class T>
OOC_HOST_DEVICE void MakeWindow(const MakeKernelArgs& args, const Grid& grid) {
  const int d = args.window[0], h = args.window[1], w = args.window[2];
  if (d == 1 && h == 1 && w == 1) return MakeTyped<T, Window<1, 1, 1>>(args, grid);
  if (d == 1 && h == 2 && w == 2) return MakeTyped<T, Window<1, 2, 2>>(args, grid);
  if (d == 1 && h == 3 && w == 3) return MakeTyped<T, Window<1, 3, 3>>(args, grid);
  MakeTyped<T, Window<0, 0, 0>>(args, grid);
}

OOC_BODY void Make(const MakeKernelArgs& args, const Grid& grid) {
  if (args.type == kF64) return MakeWindow<double>(args, grid);
  MakeWindow<float>(args, grid);
}

}  // namespace oocdnn::cuda
