// The products of fp32x3.cuh by wgmma, which GPUs of compute capability 9.0 have.
//
// A thread block has four warpgroups. Two multiply, each half of the tile's rows; two copy the
// factors of later steps to shared memory and split those of the columns, which the instructions
// read there. A multiplying warpgroup reads and splits its rows itself, which lie in registers. The
// kFp32x3Block terms of a block take six instructions; while those of one warpgroup run, the other
// one adds the sums of its last block and reads rows.
#pragma once

#include "device/cuda/fp32x3_tile.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

namespace oocdnn::cuda {

constexpr int kFp32x3Quads = kFp32x3Block / 4;  // four terms of a column, which lie side by side

// Adds eight terms to the sums of a warpgroup: 64 rows, whose factors are in registers, and 128 or
// 64 columns, whose factors lie where `columns` says. `add`: 0 if the sums begin with them.
OOC_HOST_DEVICE void WarpgroupMultiplyAdd(float (&sum)[64], const unsigned (&rows)[4],
                                          unsigned long long columns, int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
      "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1;\n}"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
        "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]),
        "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
        "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]),
        "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
        "+f"(sum[30]), "+f"(sum[31]), "+f"(sum[32]), "+f"(sum[33]), "+f"(sum[34]), "+f"(sum[35]),
        "+f"(sum[36]), "+f"(sum[37]), "+f"(sum[38]), "+f"(sum[39]), "+f"(sum[40]), "+f"(sum[41]),
        "+f"(sum[42]), "+f"(sum[43]), "+f"(sum[44]), "+f"(sum[45]), "+f"(sum[46]), "+f"(sum[47]),
        "+f"(sum[48]), "+f"(sum[49]), "+f"(sum[50]), "+f"(sum[51]), "+f"(sum[52]), "+f"(sum[53]),
        "+f"(sum[54]), "+f"(sum[55]), "+f"(sum[56]), "+f"(sum[57]), "+f"(sum[58]), "+f"(sum[59]),
        "+f"(sum[60]), "+f"(sum[61]), "+f"(sum[62]), "+f"(sum[63])
      : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(columns), "r"(add));
}

OOC_HOST_DEVICE void WarpgroupMultiplyAdd(float (&sum)[32], const unsigned (&rows)[4],
                                          unsigned long long columns, int add) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
      "%28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1;\n}"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
        "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]),
        "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
        "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]),
        "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
        "+f"(sum[30]), "+f"(sum[31])
      : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]), "l"(columns), "r"(add));
}

// Marks registers as read and written here: asynchronous instructions use them for longer than the
// compiler knows.
template <int kCount>
OOC_HOST_DEVICE void Touch(float (&values)[kCount]) {
  OOC_UNROLL
  for (float& value : values) asm volatile("" : "+f"(value)::"memory");
}

// The split factors of the rows of a block, as the instructions take them.
struct SplitRows {
  unsigned high[kFp32x3Steps][4], low[kFp32x3Steps][4];

  OOC_MEMBER void Split(const float (&values)[kFp32x3Steps][4]) {
    OOC_UNROLL
    for (int s = 0; s < kFp32x3Steps; ++s) {
      OOC_UNROLL
      for (int j = 0; j < 4; ++j) {
        const SplitFactor factor = SplitOf(values[s][j]);
        high[s][j] = factor.high;
        low[s][j] = factor.low;
      }
    }
  }

  OOC_MEMBER void Touch() {
    OOC_UNROLL
    for (int s = 0; s < kFp32x3Steps; ++s) {
      OOC_UNROLL
      for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(high[s][j]), "+r"(low[s][j])::"memory");
    }
  }
};

// The split columns of a step in shared memory: high parts, then low ones. Each is a list of quads
// of terms, and of a quad the columns lie side by side: eight columns are a core matrix of wgmma.
template <int kColumns>
struct SplitColumns {
  static constexpr int kBlocks = Fp32x3Wgmma::kTerms / kFp32x3Block;
  static constexpr int kHalfFloats = Fp32x3Wgmma::kTerms * kColumns;
  static constexpr int kFloats = 2 * kHalfFloats;
  float* at;

  // Each copier splits some quads of a column.
  template <class Factors>
  OOC_MEMBER void Fill(const float* from, unsigned thread) const {
    constexpr int kQuads = kBlocks * kFp32x3Quads * kColumns / Fp32x3Wgmma::kCopiers;
    const unsigned column = thread % kColumns, number = thread / kColumns * kQuads;
    const unsigned block = number / kFp32x3Quads, first = number % kFp32x3Quads;
    float4 quads[kQuads];
    Factors::ReadColumn(from, block, first, column, quads);
    float* to = at + (number * kColumns + column) * 4;
    OOC_UNROLL
    for (const float4& quad : quads) {
      const SplitFactor x = SplitOf(quad.x), y = SplitOf(quad.y), z = SplitOf(quad.z),
                        w = SplitOf(quad.w);
      *reinterpret_cast<uint4*>(to) = {x.high, y.high, z.high, w.high};
      *reinterpret_cast<uint4*>(to + kHalfFloats) = {x.low, y.low, z.low, w.low};
      to += kColumns * 4;
    }
  }

  // The matrix descriptor of the columns of a step of a block: two quads, without a swizzle.
  OOC_MEMBER unsigned long long Described(int block, int step, bool low) const {
    constexpr unsigned long long kQuadBytes = kColumns * 16, kEightBytes = 128;
    const float* const from =
        at + (low ? kHalfFloats : 0) + (block * kFp32x3Quads + step * 2) * kColumns * 4;
    const unsigned long long address = __cvta_generic_to_shared(from);
    return (address & 0x3ffff) >> 4 | kQuadBytes >> 4 << 16 | kEightBytes >> 4 << 32;
  }
};

template <int kColumns>
struct WarpgroupShare {
  static constexpr int kSums = kColumns / 2;
  float sum[kSums], block[kSums];
  unsigned row, lane;  // of the thread's first sum, in the tile

  OOC_MEMBER explicit WarpgroupShare(unsigned thread)
      : row(thread / 32 * 16 + thread % 32 / 4), lane(thread % 4) {}

  OOC_MEMBER void Clear() {
    OOC_UNROLL
    for (float& one : sum) one = 0.0F;
  }

  // Begins to multiply a block.
  OOC_MEMBER void Begin(const SplitRows& rows, const SplitColumns<kColumns>& columns, int number) {
    Touch(block);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    OOC_UNROLL
    for (int s = 0; s < kFp32x3Steps; ++s) {
      WarpgroupMultiplyAdd(block, rows.low[s], columns.Described(number, s, false), s);
      WarpgroupMultiplyAdd(block, rows.high[s], columns.Described(number, s, true), 1);
    }
    OOC_UNROLL
    for (int s = 0; s < kFp32x3Steps; ++s) {
      WarpgroupMultiplyAdd(block, rows.high[s], columns.Described(number, s, false), 1);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }

  // Waits for the block, and adds its sums.
  OOC_MEMBER void End(SplitRows* rows) {
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    Touch(block);
    rows->Touch();
    OOC_UNROLL
    for (int i = 0; i < kSums; ++i) sum[i] = sum[i] + block[i];
  }

  // Reads all that is added to first, so that the reads do not wait for each other.
  OOC_MEMBER void Store(const Fp32x3Args& args, const Fp32x3Tile& tile, bool add) {
    OOC_UNROLL
    for (int i = 0; i < kSums; i += 2) {
      const float2 old = add ? LoadTwo(args, Place(args, tile, i)) : float2{0.0F, 0.0F};
      block[i] = old.x;
      block[i + 1] = old.y;
    }
    // So that addresses are computed again, as there are no registers for all of them.
    asm volatile("" : "+r"(row), "+r"(lane)::"memory");
    OOC_UNROLL
    for (int i = 0; i < kSums; i += 2) {
      StoreTwo(args, Place(args, tile, i), {block[i] + sum[i], block[i + 1] + sum[i + 1]});
    }
  }

  OOC_MEMBER Fp32x3Place Place(const Fp32x3Args& args, const Fp32x3Tile& tile, int i) const {
    return PlaceOf(args, tile, row + i / 2 % 2 * 8, i / 4 * 8 + lane * 2);
  }
};

// An mbarrier in shared memory.
struct Barrier {
  unsigned address;

  OOC_MEMBER void Init(unsigned count) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(count) : "memory");
  }
  // Counts one arrival for each warp, once all its threads are here.
  OOC_MEMBER void Arrive() const {
    __syncwarp();
    if (threadIdx.x % 32 != 0) return;
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
  }
  // Waits until the phase of this number is complete.
  OOC_MEMBER void Wait(unsigned phase) const {
    asm volatile(
        "{\n.reg .pred done;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n}" ::"r"(address),
        "r"(phase % 2)
        : "memory");
  }
};

// The shared memory of a thread block.
template <int kColumns, class Factors>
struct WgmmaMemory {
  using Body = Fp32x3Wgmma;
  Fp32x3Reader* pixels;
  float *splits, *stages;

  OOC_MEMBER explicit WgmmaMemory(void* shared) : pixels(static_cast<Fp32x3Reader*>(shared)) {
    splits = reinterpret_cast<float*>(pixels + Factors::kPixels);
    stages = splits + Body::kSplits * SplitColumns<kColumns>::kFloats;
  }
  // Steps are counted over all tiles of the block.
  OOC_MEMBER float* Stage(unsigned step) const {
    return stages + step % Body::kStages * Factors::kFloats;
  }
  OOC_MEMBER SplitColumns<kColumns> Split(unsigned step) const {
    return {splits + step % Body::kSplits * SplitColumns<kColumns>::kFloats};
  }
  // Waits until the step can be multiplied, or until its memory is free.
  OOC_MEMBER void WaitForFactors(unsigned step) const { Full(step).Wait(step / Body::kSplits); }
  OOC_MEMBER void WaitForMemory(unsigned step) const {
    if (step >= Body::kSplits) Free(step).Wait(step / Body::kSplits - 1);
  }
  OOC_MEMBER Barrier Full(unsigned step) const { return {AddressOf(step % Body::kSplits)}; }
  OOC_MEMBER Barrier Free(unsigned step) const {
    return {AddressOf(Body::kSplits + step % Body::kSplits)};
  }
  OOC_MEMBER unsigned AddressOf(unsigned number) const {
    return static_cast<unsigned>(
        __cvta_generic_to_shared(stages + Body::kStages * Factors::kFloats + number * 2));
  }
};

OOC_HOST_DEVICE unsigned StepsOf(const Fp32x3Tile& tile) {
  return (tile.end - tile.begin + Fp32x3Wgmma::kTerms - 1) / Fp32x3Wgmma::kTerms;
}

// Waits for all threads that copy.
OOC_HOST_DEVICE void SyncCopiers() {
  asm volatile("bar.sync 1, %0;" ::"n"(Fp32x3Wgmma::kCopiers) : "memory");
}

// Copies and splits the factors of a tile; `before`: steps of earlier tiles.
template <int kColumns, class Factors>
OOC_HOST_DEVICE void ProvideTile(const Fp32x3Args& args, const Fp32x3Tile& tile, unsigned before,
                                 const WgmmaMemory<kColumns, Factors>& room, unsigned thread) {
  using Body = Fp32x3Wgmma;
  constexpr int kAhead = Body::kStages - Body::kSplits;  // steps whose copies are under way
  SyncCopiers();  // none still reads what copies of the last tile needed
  Factors::Begin(args, tile, room.pixels, thread);
  SyncCopiers();
  Factors factors(args, tile, room.pixels, thread);
  const unsigned steps = StepsOf(tile);
  const auto copy = [&](unsigned step) {
    if (step < steps) factors.Copy(tile.begin + step * Body::kTerms, room.Stage(before + step));
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  OOC_UNROLL
  for (unsigned step = 0; step < kAhead; ++step) copy(step);
  OOC_KEEP_ROLLED
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned number = before + step;
    asm volatile("cp.async.wait_group %0;" ::"n"(kAhead - 1) : "memory");
    SyncCopiers();
    room.WaitForMemory(number);
    room.Split(number).template Fill<Factors>(room.Stage(number), thread);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    room.Full(number).Arrive();
    copy(step + kAhead);
    factors.Continue(tile.begin + step * Body::kTerms);
  }
}

// Multiplies the factors of a tile.
template <int kColumns, class Factors>
OOC_HOST_DEVICE void MultiplyTile(const Fp32x3Args& args, const Fp32x3Tile& tile, unsigned before,
                                  const WgmmaMemory<kColumns, Factors>& room,
                                  WarpgroupShare<kColumns>* share) {
  using Body = Fp32x3Wgmma;
  static_assert(Body::kTerms == 2 * kFp32x3Block, "a step is two blocks");
  const auto read = [&](unsigned number, int block, SplitRows* rows) {
    float values[kFp32x3Steps][4];
    Factors::ReadRows(room.Stage(number), block, share->row, share->lane, values);
    rows->Split(values);
  };
  SplitRows even, odd;  // of the blocks of a step
  bool add = args.accumulate != 0;
  share->Clear();
  const unsigned steps = StepsOf(tile);
  OOC_KEEP_ROLLED
  for (unsigned step = 0; step < steps; ++step) {
    const unsigned number = before + step;
    room.WaitForFactors(number);
    read(number, 0, &even);
    share->Begin(even, room.Split(number), 0);
    read(number, 1, &odd);
    share->End(&even);
    share->Begin(odd, room.Split(number), 1);
    share->End(&odd);
    room.Free(number).Arrive();
    constexpr unsigned kCut = kFp32x3Cut / Body::kTerms;
    if ((step + 1) % kCut == 0 || step + 1 == steps) {
      share->Store(args, tile, add);
      share->Clear();
      add = true;
    }
  }
}

// The tiles of a block, one after the other; `work` also gets the number of steps of earlier ones.
template <int kColumns, class Work>
OOC_HOST_DEVICE void ForTiles(const Fp32x3Args& args, const Grid& grid, const Work& work) {
  unsigned before = 0;
  OOC_KEEP_ROLLED
  for (unsigned number = grid.block; number < args.tiles; number += grid.blocks) {
    const Fp32x3Tile tile = TileOf(args, number, kColumns);
    work(tile, before);
    before += StepsOf(tile);
  }
}

// A block takes one tile after the other, and factors of the next one are copied while the last
// sums of a tile are stored.
template <int kColumns, class Factors>
OOC_HOST_DEVICE void MultiplyTiles(const Fp32x3Args& args, const Grid& grid, Fp32x3Wgmma) {
  using Body = Fp32x3Wgmma;
  constexpr unsigned kMultipliers = Body::kThreads - Body::kCopiers;
  const unsigned thread = threadIdx.x;
  const WgmmaMemory<kColumns, Factors> room(grid.shared);
  if (thread == 0) {
    for (unsigned step = 0; step < Body::kSplits; ++step) {
      room.Full(step).Init(Body::kCopiers / 32);
      room.Free(step).Init(kMultipliers / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  OOC_BARRIER;
  // Of the registers, 128 for each thread, those that multiply get more.
  if (thread >= kMultipliers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    ForTiles<kColumns>(args, grid, [&](const Fp32x3Tile& tile, unsigned before) {
      ProvideTile<kColumns, Factors>(args, tile, before, room, thread - kMultipliers);
    });
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    WarpgroupShare<kColumns> share(thread);
    ForTiles<kColumns>(args, grid, [&](const Fp32x3Tile& tile, unsigned before) {
      MultiplyTile<kColumns, Factors>(args, tile, before, room, &share);
    });
  }
}

}  // namespace oocdnn::cuda

#endif
