// The pass over finished sums that makes z, or bits for backward, or both, in one read of the tile;
// see PoolOutput.
#pragma once

#include "device/cuda/pool_forward_one.cuh"
#include "device/cuda/shares.cuh"

namespace oocdnn::cuda {

// What a thread makes: `count` elements, for it to write, or none, and then its walk stays at the
// tile's first; and where their bits go.
struct PoolForwardTask {
  PoolForwardWalk walk;
  int count, w;                         // of the first element, in z's tile
  bool inside, there;                   // all windows' sums exist; z exists but for what W says
  int saved, saved_step, bytes, loops;  // of the bits: bytes are left in the row
};

template <bool kAcross>
OOC_HOST_DEVICE PoolForwardWalk WalkFrom(const PoolForwardKernelArgs& args, const SharePlace& at) {
  const int loop = kAcross ? 5 : args.shares.loop;
  PoolForwardWalk walk{};
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
OOC_HOST_DEVICE bool Inside(const PoolForwardKernelArgs& args, int axis, int row, int count) {
  const int first = args.first[axis] + row * args.step[axis];
  return first >= args.begin[axis] &&
         first + (count - 1) * args.step[axis] + args.window[axis] <= args.end[axis] &&
         row + count <= args.rows[axis];
}

// Where the bits of the group at `at` go.
template <bool kAcross>
OOC_HOST_DEVICE void PlaceBits(const PoolForwardKernelArgs& args, const SharePlace& at,
                               PoolForwardTask* task) {
  if (args.saved == nullptr || at.d >= args.saved_rows[0] || at.h >= args.saved_rows[1]) return;
  const int before = at.w / kPoolForwardGroup * args.bits;
  task->saved = OffsetOf(args.saved_stride, at) + at.d * args.saved_stride[3] +
                at.h * args.saved_stride[4] + before;
  task->bytes = args.row_bytes - before;
  task->saved_step = kAcross ? 0 : args.saved_stride[args.shares.loop];
}

// The threads that make a group together, each kPooled neighbours of it, or of channels.
template <bool kAcross, int kPooled>
OOC_HOST_DEVICE constexpr int ThreadsOf() {
  return kAcross ? 1 : kPoolForwardGroup / kPooled;
}

template <bool kAcross, int kPooled>
OOC_HOST_DEVICE PoolForwardTask TaskAt(const PoolForwardKernelArgs& args, unsigned base,
                                       unsigned thread) {
  constexpr int kThreads = ThreadsOf<kAcross, kPooled>();
  const unsigned number = base + thread / kThreads;
  PoolForwardTask task{};
  // Threads without work read at the tile's first, where windows of three have no vectors.
  task.inside = kPooled != 2 || args.kind != kPoolForwardMax3;
  if (number >= args.shares.count) return task;
  SharePlace at = PlaceAt<kAcross, kPoolForwardGroup>(args.shares, number);
  const int left = LoopsFrom<kAcross>(args.shares, at);
  at.c *= kAcross ? kPooled : 1;
  PlaceBits<kAcross>(args, at, &task);
  task.loops = kAcross ? kPoolForwardGroup : left;
  at.w += static_cast<int>(thread % kThreads) * kPooled;
  task.w = at.w;
  task.count = kAcross || at.w < args.z_width ? left : 0;
  if (task.count == 0) return task;
  task.walk = WalkFrom<kAcross>(args, at);
  task.there = at.d < args.rows[0] && at.h < args.rows[1];
  task.inside = Inside(args, 0, at.d, 1) && Inside(args, 1, at.h, 1) &&
                Inside(args, 2, at.w, kAcross ? task.count : kPooled);
  return task;
}

// The bits of the elements of a group that one thread makes, on their way into bytes.
struct MakeBits {
  unsigned waiting = 0;
  int filled = 0, byte = 0;
};

// Number i of the group. Sixteen bits at most wait, so that sixteen more have room.
OOC_HOST_DEVICE void PutOwn(const PoolForwardKernelArgs& args, const PoolForwardTask& task,
                            unsigned code, int i, MakeBits* own) {
  own->waiting |= code << own->filled;
  own->filled += args.bits;
  if (own->filled <= 16 && i + 1 < kPoolForwardGroup) return;
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

// kThreads threads have a part each of a group, `code` the bits of theirs.
template <int kMostBits, int kThreads>
OOC_HOST_DEVICE void PutShared(const PoolForwardKernelArgs& args, const PoolForwardTask& task,
                               unsigned code, int i, unsigned thread, unsigned* room) {
  const int shift =
      static_cast<int>(thread % kThreads) * (kPoolForwardGroup / kThreads) * args.bits;
  const int bytes = i < task.loops ? Smaller(args.bits, task.bytes) : 0;
  unsigned char* const to = args.saved + task.saved + i * task.saved_step;
  OOC_KEEP_ROLLED
  for (int first = 0; first < kMostBits && first < args.bits; first += 4) {
    const unsigned mine = kMostBits <= 4 ? code << shift : Shifted(code, shift - first * 8);
    const unsigned word = OrOf<kThreads>(mine, thread, room + first / 4);
    StoreOf<kThreads>(word, Smaller(bytes - first, 4), thread, to + first);
  }
}

// Where channels lie nearest, the bits of a row of a channel are made by threads far apart, and a
// byte each would be a write each. So a block's bits wait in its memory, and where four threads
// have groups one behind the other, each writes those of one channel.
constexpr int kPoolForwardRun = 4;

// Of a thread's group, whose bits lie at `to` in the first channel, `bytes` bytes before the row's
// end: the run that it is in.
struct PoolForwardRun {
  unsigned first, step;  // threads: the run's first, and from each to the next
  int part;              // number of this one
  bool whole;            // the block has all of the run, whose bits are whole words
};

OOC_HOST_DEVICE PoolForwardRun RunOf(const PoolForwardKernelArgs& args, const SharePlace& at,
                                     unsigned number, unsigned thread, const unsigned char* to,
                                     int bytes) {
  const TileShares& shares = args.shares;
  const int group = at.w / kPoolForwardGroup, part = group % kPoolForwardRun;
  const unsigned step = shares.channels.divisor * shares.groups.divisor, before = part * step;
  const unsigned behind = (kPoolForwardRun - 1 - part) * step;
  PoolForwardRun run{thread - before, step, part, false};
  const unsigned char* const begin = to - part * args.bits;
  run.whole = before <= thread && thread + behind < kShareThreads &&
              number + behind < shares.count &&
              static_cast<unsigned>(group - part + kPoolForwardRun) <= shares.width.divisor &&
              bytes >= (kPoolForwardRun - part) * args.bits &&
              reinterpret_cast<unsigned long long>(begin) % sizeof(unsigned) == 0 &&
              args.saved_stride[2] % sizeof(unsigned) == 0;
  return run;
}

// The bits of one channel of a whole run, as so many words.
OOC_HOST_DEVICE void PutRun(const PoolForwardKernelArgs& args, const PoolForwardRun& run,
                            const MakeRoom& room, unsigned* to) {
  unsigned long long waiting = 0;
  int filled = 0;
  OOC_UNROLL
  for (int part = 0; part < kPoolForwardRun; ++part) {
    const unsigned long long group = room.group[run.first + part * run.step][run.part];
    waiting |= group << filled;
    filled += kPoolForwardGroup * args.bits;
    if (filled < 32) continue;
    *to++ = static_cast<unsigned>(waiting);
    waiting >>= 32;
    filled -= 32;
  }
}

OOC_HOST_DEVICE void PutGroup(unsigned word, int bytes, unsigned char* to) {
  OOC_UNROLL
  for (int byte = 0; byte < 4; ++byte) {
    if (byte < bytes) to[byte] = static_cast<unsigned char>(word >> byte * 8);
  }
}

OOC_HOST_DEVICE void PutGroups(const PoolForwardKernelArgs& args, unsigned base, unsigned thread,
                               const MakeRoom& room) {
  const unsigned number = base + thread;
  if (number >= args.shares.count) return;
  SharePlace at = PlaceAt<true, kPoolForwardGroup>(args.shares, number);
  at.c *= kPoolForwardVector;
  PoolForwardTask task{};
  PlaceBits<true>(args, at, &task);
  if (task.bytes <= 0) return;
  unsigned char* const to = args.saved + task.saved;
  const PoolForwardRun run = RunOf(args, at, number, thread, to, task.bytes);
  if (run.whole) {
    unsigned char* const begin = to - run.part * args.bits + run.part * args.saved_stride[2];
    return PutRun(args, run, room, reinterpret_cast<unsigned*>(begin));
  }
  OOC_UNROLL
  for (int l = 0; l < kPoolForwardVector; ++l) {
    PutGroup(room.group[thread][l], Smaller(args.bits, task.bytes), to + l * args.saved_stride[2]);
  }
}

// An element with its slope, of those behind `element` in a row; see Saving.
template <class T>
OOC_HOST_DEVICE void PutSlope(const PoolForwardKernelArgs& args, const PoolForwardTask& task,
                              const PooledOne<T>& made, int element, int row) {
  const int size = args.bits / 8, first = element * size;
  if (row >= task.loops || first + size > task.bytes) return;
  unsigned char* to = args.saved + (task.saved + row * task.saved_step + first);
  int slope_bytes = 0;
  OOC_WITH_ELEMENT(args.slope_type, Stored, {
    const Stored slope = Convert<Stored>(made.slope);
    StoreBytes(slope, to);
    slope_bytes = sizeof slope;
  })
  unsigned code = made.code;
  OOC_KEEP_ROLLED
  for (int byte = slope_bytes; byte < size; ++byte, code >>= 8) {
    to[byte] = static_cast<unsigned char>(code);
  }
}

template <class Stored, class T, int kPooled>
OOC_HOST_DEVICE void StoreTyped(const PoolForwardKernelArgs& args, int at, int step,
                                const PooledOne<T> (&made)[kPooled]) {
  Stored* const to = static_cast<Stored*>(args.z) + at;
  if constexpr (kPooled > 1 && sizeof(Stored) <= 4) {
    if (args.z_vector != 0) {
      Vector<Stored, kPooled> values;
      OOC_UNROLL
      for (int l = 0; l < kPooled; ++l) values.at[l] = Convert<Stored>(made[l].value);
      StoreRaw(BitCast<Raw<sizeof values>>(values), reinterpret_cast<char*>(to));
      return;
    }
  }
  OOC_UNROLL
  for (int l = 0; l < kPooled; ++l) to[l * step] = Convert<Stored>(made[l].value);
}

template <bool kInPlace, class T, int kPooled>
OOC_HOST_DEVICE void StorePooled(const PoolForwardKernelArgs& args, int at, int step,
                                 const PooledOne<T> (&made)[kPooled]) {
  if constexpr (kInPlace) {
    StoreTyped<T>(args, at, step, made);
  } else {
    OOC_WITH_ELEMENT(args.z_type, Stored, StoreTyped<Stored>(args, at, step, made);)
  }
}

template <class T, class PoolForwardPass, bool kAcross>
OOC_HOST_DEVICE void PoolForwardAll(const PoolForwardKernelArgs& args, const PoolForwardTask& task,
                                    unsigned thread, MakeRoom* room) {
  constexpr int kPooled = PoolForwardPass::kPooled;
  const PoolForwardWalk& walk = task.walk;
  const int loops = kAcross ? kPoolForwardGroup : args.shares.loops;
  PoolForwardPass maker(args, walk);
  MakeBits own;
  unsigned word[kPooled] = {};
  OOC_KEEP_ROLLED
  for (int first = 0; first < loops; first += PoolForwardPass::kBatch) {
    OOC_UNROLL
    for (int slot = 0; slot < PoolForwardPass::kBatch; ++slot) {
      maker.Load(walk, first + slot < task.count ? first + slot : 0, slot);
    }
    OOC_UNROLL
    for (int slot = 0; slot < PoolForwardPass::kBatch; ++slot) {
      const int i = first + slot;
      PooledOne<T> made[kPooled];
      OOC_UNROLL
      for (int l = 0; l < kPooled; ++l) {
        const int w = task.w + (kAcross ? i : l);
        made[l] = {T(0), 0u};
        const bool there = PoolForwardPass::kInside || (task.there && w < args.rows[2]);
        if (i < task.count && there) made[l] = maker.Make(walk, i, slot, l);
        if (w < args.bits_begin || w >= args.bits_end) {
          made[l].code = 0u;
          made[l].slope = T(0);
        }
      }
      if (i < task.count) {
        StorePooled<PoolForwardPass::kInPlace>(args, walk.z + i * walk.z_step,
                                               args.z_stride[kAcross ? 2 : 5], made);
      }
      if (args.saved == nullptr || i >= loops) continue;
      if constexpr (PoolForwardPass::kSlopes) {
        if (args.slope_type != kU8) {
          const int element = kAcross ? i : static_cast<int>(thread % kPoolForwardGroup);
          PutSlope(args, task, made[0], element, kAcross ? 0 : i);
          continue;
        }
      }
      if constexpr (kAcross && kPooled > 1) {
        OOC_UNROLL
        for (int l = 0; l < kPooled; ++l) word[l] |= made[l].code << i * args.bits;
      } else if constexpr (kAcross) {
        PutOwn(args, task, made[0].code, i, &own);
      } else {
        unsigned code = 0u;
        OOC_UNROLL
        for (int l = 0; l < kPooled; ++l) code |= made[l].code << l * args.bits;
        PutShared<PoolForwardPass::kMostBits, ThreadsOf<kAcross, kPooled>()>(
            args, task, code, i, thread, room->group[i]);
      }
    }
  }
  if constexpr (kAcross && kPooled > 1) {
    OOC_UNROLL
    for (int l = 0; l < kPooled; ++l) room->group[thread][l] = word[l];
  }
}

template <int kMode, int kH, int kW, bool kAcross, int kPooled>
OOC_HOST_DEVICE void PoolForwardWindow(const PoolForwardKernelArgs& args,
                                       const PoolForwardTask& task, unsigned thread,
                                       MakeRoom* room) {
  if (kMode == kNoPool || AllOfWarp(task.inside)) {
    PoolForwardAll<float, PoolForwardKnown<kMode, kH, kW, false, kAcross, kPooled>, kAcross>(
        args, task, thread, room);
  } else {
    PoolForwardAll<float, PoolForwardKnown<kMode, kH, kW, true, kAcross, kPooled>, kAcross>(
        args, task, thread, room);
  }
}

// Of windows that are read as vectors; or where channels lie nearest, with vectors of these.
template <bool kAcross, int kPooled>
OOC_HOST_DEVICE void PoolForwardOf(const PoolForwardKernelArgs& args, unsigned base,
                                   unsigned thread, MakeRoom* room) {
  const PoolForwardTask task = TaskAt<kAcross, kPooled>(args, base, thread);
  if constexpr (kPooled != 2) {
    if (args.kind == kPoolForwardEach) {
      return PoolForwardWindow<kNoPool, 1, 1, kAcross, kPooled>(args, task, thread, room);
    }
    if (args.kind == kPoolForwardMax1) {  // all of its windows exist
      using PoolForwardPass = PoolForwardKnown<kMaxPool, 1, 1, false, kAcross, kPooled>;
      return PoolForwardAll<float, PoolForwardPass, kAcross>(args, task, thread, room);
    }
  }
  if constexpr (kAcross || kPooled < 4) {
    switch (args.kind) {
      case kPoolForwardMax3:
        return PoolForwardWindow<kMaxPool, 3, 3, kAcross, kPooled>(args, task, thread, room);
      case kPoolForwardMax2:
        return PoolForwardWindow<kMaxPool, 2, 2, kAcross, kPooled>(args, task, thread, room);
      case kPoolForwardAverage2:
        return PoolForwardWindow<kAveragePool, 2, 2, kAcross, kPooled>(args, task, thread, room);
    }
  }
}

template <bool kAcross>
OOC_HOST_DEVICE void PoolForwardOfAny(const PoolForwardKernelArgs& args, unsigned base,
                                      unsigned thread, MakeRoom* room) {
  const PoolForwardTask task = TaskAt<kAcross, 1>(args, base, thread);
  OOC_WITH_ELEMENT(args.type, Stored, {
    using PoolForwardPass = PoolForwardAny<Stored>;
    PoolForwardAll<typename PoolForwardPass::T, PoolForwardPass, kAcross>(args, task, thread, room);
  })
}

template <bool kAcross, int kPooled>
OOC_HOST_DEVICE void PoolForwardGroups(const PoolForwardKernelArgs& args, const Grid& grid) {
  MakeRoom* const room = static_cast<MakeRoom*>(grid.shared);
  const unsigned groups = kShareThreads / ThreadsOf<kAcross, kPooled>();
  for (unsigned base = grid.block * groups; base < args.shares.count;
       base += grid.blocks * groups) {
    OOC_THREADS(thread) {
      if (kPooled == 1 && args.kind == kPoolForwardAny) {
        PoolForwardOfAny<kAcross>(args, base, thread, room);
      } else if constexpr (!kAcross || kPooled > 1) {
        PoolForwardOf<kAcross, kPooled>(args, base, thread, room);
      }
    }
    if (!kAcross || kPooled == 1 || args.saved == nullptr) continue;
    OOC_BARRIER;
    OOC_THREADS(thread) { PutGroups(args, base, thread, *room); }
    OOC_BARRIER;
  }
}

OOC_BODY void PoolForward(const PoolForwardKernelArgs& args, const Grid& grid) {
  const bool across = args.shares.loop == 5;
  if (across && args.made == kPoolForwardVector)
    return PoolForwardGroups<true, kPoolForwardVector>(args, grid);
  if (across) return PoolForwardGroups<true, 1>(args, grid);
  switch (args.made) {
    case 2: return PoolForwardGroups<false, 2>(args, grid);
    case kPoolForwardVector: return PoolForwardGroups<false, kPoolForwardVector>(args, grid);
    default: return PoolForwardGroups<false, 1>(args, grid);
  }
}

}  // namespace oocdnn::cuda
