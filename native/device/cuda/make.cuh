// The pass over finished sums that makes z, or bits for backward, or both, in one read of the tile;
// see Made.
#pragma once

#include "device/cuda/make_one.cuh"
#include "device/cuda/shares.cuh"

namespace oocdnn::cuda {

// What a thread makes: `count` elements, for it to write, or none, and then its walk stays at the
// tile's first; and where their bits go.
struct MakeTask {
  MakeWalk walk;
  int count, w;                         // of the first element, in z's tile
  bool inside, there;                   // all windows' sums exist; z exists but for what W says
  int saved, saved_step, bytes, loops;  // of the bits: bytes are left in the row
};

template <bool kAcross>
OOC_HOST_DEVICE MakeWalk WalkFrom(const MakeKernelArgs& args, const SharePlace& at) {
  const int loop = kAcross ? 5 : args.shares.loop;
  MakeWalk walk{};
  walk.first[0] = args.first[0] + at.d * args.step[0];
  walk.first[1] = args.first[1] + at.h * args.step[1];
  walk.first[2] = args.first[2] + at.w * args.step[2];
  walk.w_step = kAcross ? args.step[2] : 0;
  walk.y = OffsetOf(args.y_stride, at) + walk.first[0] * args.y_stride[3] +
           walk.first[1] * args.y_stride[4] + walk.first[2] * args.y_stride[5];
  walk.y_step = kAcross ? args.step[2] * args.y_stride[5] : args.y_stride[loop];
  walk.z = OffsetOf(args.z_stride, at) + at.d * args.z_stride[3] + at.h * args.z_stride[4] +
           at.w * args.z_stride[5];
  walk.z_step = args.z_stride[loop];
  walk.channel = at.g * args.group_channels + at.c;
  walk.channel_step = !kAcross && loop == 2 ? 1 : 0;
  return walk;
}

// Whether all windows of a thread lie inside along one axis: it has `count` rows from `row` on.
OOC_HOST_DEVICE bool Inside(const MakeKernelArgs& args, int axis, int row, int count) {
  const int first = args.first[axis] + row * args.step[axis];
  return first >= args.begin[axis] &&
         first + (count - 1) * args.step[axis] + args.window[axis] <= args.end[axis] &&
         row + count <= args.rows[axis];
}

// Where the bits of the group at `at` go.
template <bool kAcross>
OOC_HOST_DEVICE void PlaceBits(const MakeKernelArgs& args, const SharePlace& at, MakeTask* task) {
  if (args.saved == nullptr || at.d >= args.saved_rows[0] || at.h >= args.saved_rows[1]) return;
  const int before = at.w / kMakeGroup * args.bits;
  task->saved = OffsetOf(args.saved_stride, at) + at.d * args.saved_stride[3] +
                at.h * args.saved_stride[4] + before;
  task->bytes = args.row_bytes - before;
  task->saved_step = kAcross ? 0 : args.saved_stride[args.shares.loop];
}

template <bool kAcross>
OOC_HOST_DEVICE MakeTask TaskAt(const MakeKernelArgs& args, unsigned base, unsigned thread) {
  const unsigned number = base + (kAcross ? thread : thread / kMakeGroup);
  MakeTask task{};
  task.inside = true;
  if (number >= args.shares.count) return task;
  SharePlace at = PlaceAt<kAcross, kMakeGroup>(args.shares, number);
  PlaceBits<kAcross>(args, at, &task);
  const int left = LoopsFrom<kAcross>(args.shares, at);
  task.loops = kAcross ? kMakeGroup : left;
  at.w += kAcross ? 0 : static_cast<int>(thread % kMakeGroup);
  task.w = at.w;
  task.count = kAcross || at.w < args.z_width ? left : 0;
  if (task.count == 0) return task;
  task.walk = WalkFrom<kAcross>(args, at);
  task.there = at.d < args.rows[0] && at.h < args.rows[1];
  task.inside = Inside(args, 0, at.d, 1) && Inside(args, 1, at.h, 1) &&
                Inside(args, 2, at.w, kAcross ? task.count : 1);
  return task;
}

// The bits of the elements of a group that one thread makes, on their way into bytes.
struct MakeBits {
  unsigned waiting = 0;
  int filled = 0, byte = 0;
};

// Number i of the group. Sixteen bits at most wait, so that sixteen more have room.
OOC_HOST_DEVICE void PutOwn(const MakeKernelArgs& args, const MakeTask& task, unsigned code, int i,
                            MakeBits* own) {
  own->waiting |= code << own->filled;
  own->filled += args.bits;
  if (own->filled <= 16 && i + 1 < kMakeGroup) return;
  OOC_KEEP_ROLLED
  for (; own->filled >= 8; own->filled -= 8, own->waiting >>= 8) {
    if (own->byte < task.bytes) {
      args.saved[task.saved + own->byte] = static_cast<unsigned char>(own->waiting);
    }
    ++own->byte;
  }
}

OOC_HOST_DEVICE unsigned Shifted(unsigned code, int by) {
  if (by >= 32 || by <= -32) return 0u;
  return by >= 0 ? code << by : code >> -by;
}

// Eight threads have an element each of a group.
template <int kMostBits>
OOC_HOST_DEVICE void PutShared(const MakeKernelArgs& args, const MakeTask& task, unsigned code,
                               int i, unsigned thread, unsigned* room) {
  const int shift = static_cast<int>(thread % kMakeGroup) * args.bits;
  const int bytes = i < task.loops ? Smaller(args.bits, task.bytes) : 0;
  unsigned char* const to = args.saved + task.saved + i * task.saved_step;
  OOC_KEEP_ROLLED
  for (int first = 0; first < kMostBits && first < args.bits; first += 4) {
    const unsigned mine = kMostBits <= 4 ? code << shift : Shifted(code, shift - first * 8);
    const unsigned word = OrOfEight(mine, thread, room + first / 4);
    StoreOfEight(word, Smaller(bytes - first, 4), thread, to + first);
  }
}

template <class T>
OOC_HOST_DEVICE void StoreMade(const MakeKernelArgs& args, int at, T value) {
  OOC_WITH_ELEMENT(args.z_type, Stored, static_cast<Stored*>(args.z)[at] = Convert<Stored>(value);)
}

template <class T, class Maker, bool kAcross>
OOC_HOST_DEVICE void MakeAll(const MakeKernelArgs& args, const MakeTask& task, unsigned thread,
                             MakeRoom* room) {
  const MakeWalk& walk = task.walk;
  const int loops = kAcross ? kMakeGroup : args.shares.loops;
  Maker maker(args);
  MakeBits own;
  OOC_KEEP_ROLLED
  for (int first = 0; first < loops; first += Maker::kBatch) {
    OOC_UNROLL
    for (int slot = 0; slot < Maker::kBatch; ++slot) {
      maker.Load(walk, first + slot < task.count ? first + slot : 0, slot);
    }
    OOC_UNROLL
    for (int slot = 0; slot < Maker::kBatch; ++slot) {
      const int i = first + slot, w = task.w + (kAcross ? i : 0);
      MadeOne<T> made{T(0), 0u};
      if (i < task.count) {
        const bool there = Maker::kInside || (task.there && w < args.rows[2]);
        if (there) made = maker.Make(walk, i, slot);
        StoreMade<T>(args, walk.z + i * walk.z_step, made.value);
      }
      if (args.saved == nullptr || i >= loops) continue;
      const unsigned code = w >= args.bits_begin && w < args.bits_end ? made.code : 0u;
      if (kAcross) {
        PutOwn(args, task, code, i, &own);
      } else {
        PutShared<Maker::kMostBits>(args, task, code, i, thread, room->word[i]);
      }
    }
  }
}

template <int kMode, int kH, int kW, bool kAcross>
OOC_HOST_DEVICE void MakeWindow(const MakeKernelArgs& args, const MakeTask& task, unsigned thread,
                                MakeRoom* room) {
  if (kMode == kNoPool || AllOfWarp(task.inside)) {
    MakeAll<float, MakeKnown<kMode, kH, kW, false>, kAcross>(args, task, thread, room);
  } else {
    MakeAll<float, MakeKnown<kMode, kH, kW, true>, kAcross>(args, task, thread, room);
  }
}

template <bool kAcross>
OOC_HOST_DEVICE void MakeOf(const MakeKernelArgs& args, unsigned base, unsigned thread,
                            MakeRoom* room) {
  const MakeTask task = TaskAt<kAcross>(args, base, thread);
  switch (args.kind) {
    case kMakeEach: return MakeWindow<kNoPool, 1, 1, kAcross>(args, task, thread, room);
    case kMakeMax2: return MakeWindow<kMaxPool, 2, 2, kAcross>(args, task, thread, room);
    case kMakeMax3: return MakeWindow<kMaxPool, 3, 3, kAcross>(args, task, thread, room);
    case kMakeAverage2: return MakeWindow<kAveragePool, 2, 2, kAcross>(args, task, thread, room);
  }
  if (args.type == kF64) {
    MakeAll<double, MakeAny<double>, kAcross>(args, task, thread, room);
  } else {
    MakeAll<float, MakeAny<float>, kAcross>(args, task, thread, room);
  }
}

template <bool kAcross>
OOC_HOST_DEVICE void MakeGroups(const MakeKernelArgs& args, const Grid& grid) {
  MakeRoom* const room = static_cast<MakeRoom*>(grid.shared);
  const unsigned groups = kAcross ? kShareThreads : kShareThreads / kMakeGroup;
  for (unsigned base = grid.block * groups; base < args.shares.count;
       base += grid.blocks * groups) {
    OOC_THREADS(thread) { MakeOf<kAcross>(args, base, thread, room); }
  }
}

OOC_BODY void Make(const MakeKernelArgs& args, const Grid& grid) {
  if (args.shares.loop == 5) return MakeGroups<true>(args, grid);
  MakeGroups<false>(args, grid);
}

}  // namespace oocdnn::cuda
