// The products of fp32x3.cuh by mma, which GPUs have from compute capability 8.0 on. A warp
// computes a quarter of a tile, and splits what it reads.
#pragma once

#include "device/cuda/fp32x3_tile.cuh"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

namespace oocdnn::cuda {

OOC_HOST_DEVICE void MultiplyAdd(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

constexpr int kFp32x3RowParts = 4;  // blocks of 16 rows of a warp

// The share of a warp in a tile: kFp32x3Rows / 2 x kColumns / 2 sums. Each thread has four of each
// 16 x 8 of them.
template <int kColumns>
struct Fp32x3Share {
  static constexpr int kParts = kColumns / 16;  // blocks of 8 columns
  float sum[kFp32x3RowParts][kParts][4];
  unsigned row, column;  // of the thread's first sum, in the tile
  unsigned lane_row, lane_column;

  OOC_MEMBER explicit Fp32x3Share(unsigned thread) {
    const unsigned warp = thread / 32, lane = thread % 32;
    lane_row = lane / 4;
    lane_column = lane % 4;
    row = warp % 2 * (kFp32x3Rows / 2) + lane_row;
    column = warp / 2 * (kColumns / 2);
  }

  OOC_MEMBER void Clear() {
    OOC_UNROLL
    for (auto& rows : sum) {
      OOC_UNROLL
      for (auto& part : rows) {
        OOC_UNROLL
        for (float& one : part) one = 0.0F;
      }
    }
  }

  // Adds a block of terms. Element (i, t) of the factors of the rows lies at
  // rows[i * kRowStep + t * kRowTerm]; of those of the columns likewise.
  template <int kRowStep, int kColumnStep, int kRowTerm, int kColumnTerm>
  OOC_MEMBER void AddBlock(const float* rows, const float* columns) {
    constexpr int kSteps = kFp32x3Block / 8;  // that tensor cores take
    unsigned high[kSteps][kFp32x3RowParts][4], low[kSteps][kFp32x3RowParts][4];
    OOC_UNROLL
    for (int s = 0; s < kSteps; ++s) {
      OOC_UNROLL
      for (int i = 0; i < kFp32x3RowParts; ++i) {
        OOC_UNROLL
        for (int j = 0; j < 4; ++j) {
          const unsigned at = (row + i * 16 + j % 2 * 8) * kRowStep;
          const SplitFactor factor =
              SplitOf(rows[at + (lane_column + s * 8 + j / 2 * 4) * kRowTerm]);
          high[s][i][j] = factor.high;
          low[s][i][j] = factor.low;
        }
      }
    }
    OOC_UNROLL
    for (int p = 0; p < kParts; ++p) {
      unsigned other_high[kSteps][2], other_low[kSteps][2];
      OOC_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        OOC_UNROLL
        for (int j = 0; j < 2; ++j) {
          const unsigned at = (column + p * 8 + lane_row) * kColumnStep;
          const SplitFactor factor =
              SplitOf(columns[at + (lane_column + s * 8 + j * 4) * kColumnTerm]);
          other_high[s][j] = factor.high;
          other_low[s][j] = factor.low;
        }
      }
      // Products that wait for each other are as far apart as they can be.
      float block[kFp32x3RowParts][4] = {};
      OOC_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        OOC_UNROLL
        for (int i = 0; i < kFp32x3RowParts; ++i) MultiplyAdd(block[i], low[s][i], other_high[s]);
        OOC_UNROLL
        for (int i = 0; i < kFp32x3RowParts; ++i) MultiplyAdd(block[i], high[s][i], other_low[s]);
      }
      OOC_UNROLL
      for (int s = 0; s < kSteps; ++s) {
        OOC_UNROLL
        for (int i = 0; i < kFp32x3RowParts; ++i) MultiplyAdd(block[i], high[s][i], other_high[s]);
      }
      OOC_UNROLL
      for (int i = 0; i < kFp32x3RowParts; ++i) {
        OOC_UNROLL
        for (int j = 0; j < 4; ++j) sum[i][p][j] = sum[i][p][j] + block[i][j];
      }
    }
  }

  OOC_MEMBER void Store(const Fp32x3Args& args, const Fp32x3Tile& tile, bool add) const {
    OOC_UNROLL
    for (int i = 0; i < kFp32x3RowParts; ++i) {
      OOC_UNROLL
      for (int half = 0; half < 2; ++half) {
        OOC_UNROLL
        for (int p = 0; p < kParts; ++p) {
          const Fp32x3Place place =
              PlaceOf(args, tile, row + i * 16 + half * 8, column + p * 8 + lane_column * 2);
          const float2 old = add ? LoadTwo(args, place) : float2{0.0F, 0.0F};
          const float* const its = sum[i][p] + half * 2;
          StoreTwo(args, place, {old.x + its[0], old.y + its[1]});
        }
      }
    }
  }
};

// Adds a block of terms of a step, `term` terms behind its first.
template <int kColumns, int kVector, class Body, class Share>
OOC_HOST_DEVICE void AddBlock(const GatherFactors<kColumns, kVector, Body>& factors,
                              const float* at, int term, Share* share) {
  share->template AddBlock<Body::kPitch, Body::kPitch, 1, 1>(at + term,
                                                             at + factors.kRowFloats + term);
}
template <int kColumns, int kVector, bool kTransposed, class Body, class Share>
OOC_HOST_DEVICE void AddBlock(const FilterFactors<kColumns, kVector, kTransposed, Body>& factors,
                              const float* at, int term, Share* share) {
  constexpr int kRowPitch = FilterFactors<kColumns, kVector, kTransposed, Body>::kRowPitch;
  constexpr int kColumnPitch = FilterFactors<kColumns, kVector, kTransposed, Body>::kColumnPitch;
  share->template AddBlock<1, 1, kRowPitch, kColumnPitch>(
      at + term * kRowPitch, at + factors.kRowFloats + term * kColumnPitch);
}

template <int kColumns, class Factors>
OOC_HOST_DEVICE void MultiplyTiles(const Fp32x3Args& args, const Grid& grid, Fp32x3Mma) {
  using Body = Fp32x3Mma;
  const unsigned thread = threadIdx.x;
  const Fp32x3Tile tile = TileOf(args, grid.block, kColumns);
  auto* const pixels = static_cast<Fp32x3Reader*>(grid.shared);
  float* const rooms = reinterpret_cast<float*>(pixels + Factors::kPixels);
  Factors::Begin(args, tile, pixels, thread);
  OOC_BARRIER;
  Factors factors(args, tile, pixels, thread);
  Fp32x3Share<kColumns> share(thread);
  int room = 0;
  factors.Copy(tile.begin, rooms);
  asm volatile("cp.async.commit_group;");
  bool add = args.accumulate != 0;
  unsigned term = tile.begin;
  do {
    share.Clear();
    const unsigned left = tile.end - term;
    const unsigned cut = left < kFp32x3Cut ? tile.end : term + kFp32x3Cut;
    for (; term < cut; term += Body::kTerms) {
      const unsigned next = term + Body::kTerms;
      factors.Continue(term);
      if (next < tile.end) factors.Copy(next, rooms + (room ^ 1) * Factors::kFloats);
      asm volatile("cp.async.commit_group;");
      asm volatile("cp.async.wait_group 1;");
      OOC_BARRIER;
      OOC_UNROLL
      for (int block = 0; block < Body::kTerms; block += kFp32x3Block) {
        AddBlock(factors, rooms + room * Factors::kFloats, block, &share);
      }
      OOC_BARRIER;
      room ^= 1;
    }
    share.Store(args, tile, add);
    add = true;
  } while (term < tile.end);
}

}  // namespace oocdnn::cuda

#endif
