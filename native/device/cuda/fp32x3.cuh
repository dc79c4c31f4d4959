// Convolutions of float32 on tensor cores, in three products of TF32 each. A factor is the sum of
// two TF32 numbers, x = high + low, which leaves out at most the last of its 24 bits:
//
//   x * w = low * high + high * low + high * high     (low * low is at most 2^-22 of it)
//
// Tensor cores truncate when they add, which is a bias that grows with the length of a sum. So they
// add kFp32x3Block terms only; the sums of the blocks are added by the multiprocessor, which rounds
// to the nearest, and those of kFp32x3Cut terms are added to what is in memory. The order of the
// terms and the places of the cuts depend on the problem alone:
//
//   forward t r s c;  backward data t r s k;  backward filter n o p q
//
// A convolution is a product of matrices that are never formed: rows are pixels (filter gradients:
// output channels), columns are channels (filter gradients: taps and input channels). A block of
// threads computes kFp32x3Rows x kColumns of the result, a warp a quarter of that, in steps of
// kFp32x3Terms terms, while the factors of the next step are copied to shared memory.
#pragma once

#include "device/cuda/direct.cuh"

namespace oocdnn::cuda {

constexpr int kFp32x3Block = 16;  // terms of a block
constexpr int kFp32x3Cut = 1024;  // terms of a sum in registers

// The tile of a block of threads: its first row and column, its group, and its part of the terms.
struct Fp32x3Tile {
  unsigned row, column, group, begin, end;
  Long out;  // of element (0, 0) of its group and part
};

OOC_HOST_DEVICE Fp32x3Tile TileOf(const Fp32x3Args& args, unsigned number, int columns) {
  Fp32x3Tile tile;
  tile.column = Take(&number, args.column_tiles) * columns;
  tile.row = Take(&number, args.row_tiles) * kFp32x3Rows;
  tile.group = Take(&number, args.groups);
  tile.begin = args.first_term + number * args.part_terms;
  tile.end = tile.begin + args.part_terms < args.terms ? tile.begin + args.part_terms : args.terms;
  tile.out = static_cast<Long>(number) * args.part_elements + tile.group * args.out_group;
  return tile;
}

// The place that the first tap of a pixel reads: the first place of the image, and coordinates.
struct alignas(16) Fp32x3Pixel {
  int image, at[3];
};

OOC_HOST_DEVICE Fp32x3Pixel PixelOf(const Fp32x3Args& args, unsigned number, unsigned end) {
  constexpr int kNowhere = -(1 << 30);
  if (number >= end) return {0, {kNowhere, kNowhere, kNowhere}};
  Fp32x3Pixel pixel;
  for (int d = 2; d >= 0; --d) {
    pixel.at[d] = static_cast<int>(Take(&number, args.pixels[d])) * args.step[d] + args.base[d];
  }
  pixel.image = static_cast<int>(number) * args.source_places;
  return pixel;
}

// The tap of a term (filter gradients: of a column): distance to the first tap, and channel.
struct Fp32x3Tap {
  int at[3], channel;
  bool there;
};

OOC_HOST_DEVICE Fp32x3Tap TapOf(const Fp32x3Args& args, unsigned number, unsigned end) {
  Fp32x3Tap tap;
  tap.there = number < end;
  tap.channel = static_cast<int>(Take(&number, args.channels));
  tap.at[2] = static_cast<int>(Take(&number, args.taps[1])) * args.tap_step[2];
  tap.at[1] = static_cast<int>(Take(&number, args.taps[0])) * args.tap_step[1];
  tap.at[0] = static_cast<int>(number) * args.tap_step[0];
  return tap;
}

// The element of the read tensor that a pixel reads with a tap, from `from` on; null: zero.
OOC_HOST_DEVICE const float* SourceOf(const Fp32x3Args& args, const float* from,
                                      const Fp32x3Pixel& pixel, const Fp32x3Tap& tap) {
  const int d = pixel.at[0] + tap.at[0], h = pixel.at[1] + tap.at[1], w = pixel.at[2] + tap.at[2];
  const bool there = tap.there && Inside(d, args.source[0]) && Inside(h, args.source[1]) &&
                     Inside(w, args.source[2]);
  if (!there) return nullptr;
  const int place = pixel.image + (d * args.source[1] + h) * args.source[2] + w;
  return from + (static_cast<Long>(place) * args.source_pitch + tap.channel);
}

// The two TF32 numbers whose sum is a factor: `high` is rounded to the nearest, and `low` is read
// without its last bits, of which at most one is not 0.
struct SplitFactor {
  unsigned high, low;
};

OOC_HOST_DEVICE SplitFactor SplitOf(float value) {
  constexpr unsigned kHalf = 1u << 12;
  const unsigned high = (BitCast<unsigned>(value) + kHalf) & ~(2 * kHalf - 1);
  return {high, BitCast<unsigned>(value - BitCast<float>(high))};
}

#ifdef __CUDACC__
#if __CUDA_ARCH__ >= 800

// Copies kBytes to shared memory, zeros where `from` is null, while the thread goes on.
template <int kBytes>
OOC_HOST_DEVICE void CopyAhead(float* to, const float* from, const float* any) {
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const int bytes = from != nullptr ? kBytes : 0;
  if (from == nullptr) from = any;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(bytes));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(address), "l"(from),
                 "r"(bytes));
  }
}

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

  // `add`: to what is there.
  OOC_MEMBER void Store(const Fp32x3Args& args, const Fp32x3Tile& tile, bool add) const {
    OOC_UNROLL
    for (int i = 0; i < kFp32x3RowParts; ++i) {
      OOC_UNROLL
      for (int half = 0; half < 2; ++half) {
        const unsigned to = tile.row + row + i * 16 + half * 8;
        if (to >= args.rows) continue;
        float* const out = args.out + tile.out + static_cast<Long>(to) * args.out_pitch;
        OOC_UNROLL
        for (int p = 0; p < kParts; ++p) {
          const unsigned at = tile.column + column + p * 8 + lane_column * 2;
          StoreTwo(args, out + at, at, {sum[i][p][half * 2], sum[i][p][half * 2 + 1]}, add);
        }
      }
    }
  }

  OOC_MEMBER static void StoreTwo(const Fp32x3Args& args, float* out, unsigned column, float2 two,
                                  bool add) {
    if (column >= args.columns) return;
    if (args.pairs != 0) {
      auto* const pair = reinterpret_cast<float2*>(out);
      const float2 old = add ? *pair : float2{0.0F, 0.0F};
      *pair = {old.x + two.x, old.y + two.y};
      return;
    }
    out[0] = (add ? out[0] : 0.0F) + two.x;
    if (column + 1 < args.columns) out[1] = (add ? out[1] : 0.0F) + two.y;
  }
};

// Copies the factors of a step of forward or backward data: rows of terms.
template <int kColumns, int kVector>
struct GatherFactors {
  static constexpr int kAcross = kFp32x3Terms / kVector, kDown = kFp32x3Threads / kAcross;
  static constexpr int kRowFloats = kFp32x3Rows * kFp32x3Pitch;
  static constexpr int kFloats = kRowFloats + kColumns * kFp32x3Pitch;
  const Fp32x3Args& args;
  const Fp32x3Tile& tile;
  const Fp32x3Pixel* pixels;
  const float *source, *filter;
  unsigned across, down;

  OOC_MEMBER GatherFactors(const Fp32x3Args& its, const Fp32x3Tile& of, Fp32x3Pixel* room,
                           unsigned thread)
      : args(its),
        tile(of),
        pixels(room),
        across(thread % kAcross * kVector),
        down(thread / kAcross) {
    source = args.source_data + tile.group * args.source_group;
    filter = args.other_data + static_cast<Long>(tile.group) * args.other_group;
    static_assert(kFp32x3Rows == kFp32x3Threads, "a thread finds one pixel");
    room[thread] = PixelOf(args, tile.row + thread, args.rows);
    OOC_BARRIER;
  }

  OOC_MEMBER void Copy(unsigned term, float* to) const {
    const Fp32x3Tap tap = TapOf(args, term + across, tile.end);
    OOC_UNROLL
    for (int i = 0; i < kFp32x3Rows / kDown; ++i) {
      const unsigned row = down + i * kDown;
      CopyAhead<kVector * 4>(to + row * kFp32x3Pitch + across,
                             SourceOf(args, source, pixels[row], tap), source);
    }
    to += kRowFloats;
    OOC_UNROLL
    for (int i = 0; i < kColumns / kDown; ++i) {
      const unsigned row = down + i * kDown, column = tile.column + row;
      const float* const from = filter + (static_cast<Long>(column) * args.terms + term + across);
      const bool there = tap.there && column < args.columns;
      CopyAhead<kVector * 4>(to + row * kFp32x3Pitch + across, there ? from : nullptr, filter);
    }
  }

  template <class Share>
  OOC_MEMBER static void Add(Share* share, const float* at, int term) {
    share->template AddBlock<kFp32x3Pitch, kFp32x3Pitch, 1, 1>(at + term, at + kRowFloats + term);
  }
};

// Copies the factors of a step of a filter gradient: rows of channels, each of a pixel.
template <int kColumns, int kVector>
struct FilterFactors {
  static constexpr int kRowPitch = kFp32x3Rows + kFp32x3Margin;
  static constexpr int kColumnPitch = kColumns + kFp32x3Margin;
  static constexpr int kRowFloats = kFp32x3Terms * kRowPitch;
  static constexpr int kFloats = kRowFloats + kFp32x3Terms * kColumnPitch;
  const Fp32x3Args& args;
  const Fp32x3Tile& tile;
  const float *source, *gradient;
  Fp32x3Tap tap;
  unsigned thread;

  OOC_MEMBER FilterFactors(const Fp32x3Args& its, const Fp32x3Tile& of, Fp32x3Pixel*,
                           unsigned its_thread)
      : args(its), tile(of), thread(its_thread) {
    source = args.source_data + tile.group * args.source_group;
    gradient = args.other_data + tile.group * args.other_group;
    tap = TapOf(args, tile.column + thread % (kColumns / kVector) * kVector, args.columns);
  }

  OOC_MEMBER void Copy(unsigned term, float* to) const {
    CopyRows(term, to);
    constexpr int kAcross = kColumns / kVector, kDown = kFp32x3Threads / kAcross;
    to += kRowFloats + thread % kAcross * kVector;
    OOC_UNROLL
    for (int i = 0; i < kFp32x3Terms / kDown; ++i) {
      const unsigned row = thread / kAcross + i * kDown;
      const Fp32x3Pixel pixel = PixelOf(args, term + row, tile.end);
      CopyAhead<kVector * 4>(to + row * kColumnPitch, SourceOf(args, source, pixel, tap), source);
    }
  }

  OOC_MEMBER void CopyRows(unsigned term, float* to) const {
    constexpr int kAcross = kFp32x3Rows / kVector, kDown = kFp32x3Threads / kAcross;
    const unsigned across = thread % kAcross * kVector;
    OOC_UNROLL
    for (int i = 0; i < kFp32x3Terms / kDown; ++i) {
      const unsigned row = thread / kAcross + i * kDown, pixel = term + row;
      const bool there = pixel < tile.end && tile.row + across < args.rows;
      const float* const from =
          gradient + (static_cast<Long>(pixel) * args.other_pitch + tile.row + across);
      CopyAhead<kVector * 4>(to + row * kRowPitch + across, there ? from : nullptr, gradient);
    }
  }

  template <class Share>
  OOC_MEMBER static void Add(Share* share, const float* at, int term) {
    share->template AddBlock<1, 1, kRowPitch, kColumnPitch>(at + term * kRowPitch,
                                                            at + kRowFloats + term * kColumnPitch);
  }
};

template <int kColumns, class Factors>
OOC_HOST_DEVICE void MultiplyTile(const Fp32x3Args& args, const Grid& grid) {
  const unsigned thread = threadIdx.x;
  const Fp32x3Tile tile = TileOf(args, grid.block, kColumns);
  auto* const pixels = static_cast<Fp32x3Pixel*>(grid.shared);
  float* const rooms = reinterpret_cast<float*>(pixels + kFp32x3Rows);
  const Factors factors(args, tile, pixels, thread);
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
    for (; term < cut; term += kFp32x3Terms) {
      const unsigned next = term + kFp32x3Terms;
      if (next < tile.end) factors.Copy(next, rooms + (room ^ 1) * Factors::kFloats);
      asm volatile("cp.async.commit_group;");
      asm volatile("cp.async.wait_group 1;");
      OOC_BARRIER;
      OOC_UNROLL
      for (int block = 0; block < kFp32x3Terms; block += kFp32x3Block) {
        Factors::Add(&share, rooms + room * Factors::kFloats, block);
      }
      OOC_BARRIER;
      room ^= 1;
    }
    share.Store(args, tile, add);
    add = true;
  } while (term < tile.end);
}

template <int kColumns, template <int, int> class Factors>
OOC_HOST_DEVICE void Multiply(const Fp32x3Args& args, const Grid& grid) {
  if (args.vector == 4) {
    MultiplyTile<kColumns, Factors<kColumns, 4>>(args, grid);
  } else {
    MultiplyTile<kColumns, Factors<kColumns, 1>>(args, grid);
  }
}

template <int kColumns>
OOC_HOST_DEVICE void GatherTile(const Fp32x3Args& args, const Grid& grid) {
  Multiply<kColumns, GatherFactors>(args, grid);
}
template <int kColumns>
OOC_HOST_DEVICE void FilterTile(const Fp32x3Args& args, const Grid& grid) {
  Multiply<kColumns, FilterFactors>(args, grid);
}

#else  // these have no TF32, and the host has no engine with it there (Gpu::has_tf32)

template <int kColumns>
OOC_HOST_DEVICE void GatherTile(const Fp32x3Args&, const Grid&) {}
template <int kColumns>
OOC_HOST_DEVICE void FilterTile(const Fp32x3Args&, const Grid&) {}

#endif
#else  // for tests without a GPU: the same products and blocks, one sum at a time

inline double ReadTf32(unsigned bits) { return BitCast<float>(bits & ~((2u << 12) - 1)); }

inline double ProductOf(float a, float b) {
  const SplitFactor one = SplitOf(a), other = SplitOf(b);
  const double a_high = ReadTf32(one.high), b_high = ReadTf32(other.high);
  return ReadTf32(one.low) * b_high + a_high * ReadTf32(other.low) + a_high * b_high;
}

// `row_factor`, `column_factor`: of a row or a column of the tile, and a term; null: zero.
template <class RowFactor, class ColumnFactor>
inline void MultiplyTile(const Fp32x3Args& args, const Fp32x3Tile& tile, int columns,
                         const RowFactor& row_factor, const ColumnFactor& column_factor) {
  for (unsigned row = tile.row; row < args.rows && row < tile.row + kFp32x3Rows; ++row) {
    for (unsigned column = tile.column; column < args.columns && column < tile.column + columns;
         ++column) {
      float* const out = args.out + tile.out + static_cast<Long>(row) * args.out_pitch + column;
      float sum = 0.0F, all = args.accumulate != 0 ? *out : 0.0F;
      for (unsigned term = tile.begin; term < tile.end; term += kFp32x3Block) {
        if ((term - tile.begin) % kFp32x3Cut == 0) {
          all += sum;
          sum = 0.0F;
        }
        double block = 0.0;
        for (unsigned t = term; t < term + kFp32x3Block && t < tile.end; ++t) {
          const float *a = row_factor(row, t), *b = column_factor(column, t);
          block += ProductOf(a != nullptr ? *a : 0.0F, b != nullptr ? *b : 0.0F);
        }
        sum += static_cast<float>(block);
      }
      *out = all + sum;
    }
  }
}

template <int kColumns>
inline void GatherTile(const Fp32x3Args& args, const Grid& grid) {
  const Fp32x3Tile tile = TileOf(args, grid.block, kColumns);
  const float* const source = args.source_data + tile.group * args.source_group;
  const float* const filter = args.other_data + tile.group * args.other_group;
  MultiplyTile(
      args, tile, kColumns,
      [&](unsigned row, unsigned term) {
        return SourceOf(args, source, PixelOf(args, row, args.rows), TapOf(args, term, tile.end));
      },
      [&](unsigned column, unsigned term) {
        return filter + (static_cast<Long>(column) * args.terms + term);
      });
}

template <int kColumns>
inline void FilterTile(const Fp32x3Args& args, const Grid& grid) {
  const Fp32x3Tile tile = TileOf(args, grid.block, kColumns);
  const float* const source = args.source_data + tile.group * args.source_group;
  const float* const gradient = args.other_data + tile.group * args.other_group;
  MultiplyTile(
      args, tile, kColumns,
      [&](unsigned row, unsigned term) {
        return gradient + (static_cast<Long>(term) * args.other_pitch + row);
      },
      [&](unsigned column, unsigned term) {
        return SourceOf(args, source, PixelOf(args, term, tile.end),
                        TapOf(args, column, args.columns));
      });
}

#endif

OOC_BODY void Fp32x3Gather(const Fp32x3Args& args, const Grid& grid) {
  GatherTile<kFp32x3Columns>(args, grid);
}
OOC_BODY void Fp32x3GatherNarrow(const Fp32x3Args& args, const Grid& grid) {
  GatherTile<kFp32x3Columns / 2>(args, grid);
}
OOC_BODY void Fp32x3Filter(const Fp32x3Args& args, const Grid& grid) {
  FilterTile<kFp32x3Columns>(args, grid);
}
OOC_BODY void Fp32x3FilterNarrow(const Fp32x3Args& args, const Grid& grid) {
  FilterTile<kFp32x3Columns / 2>(args, grid);
}

// Adds up the sums of the parts of a filter gradient.
OOC_BODY void Fp32x3Add(const Fp32x3AddArgs& args, const Grid& grid) {
  OOC_THREADS(thread) {
    for (unsigned i = grid.block * grid.threads + thread; i < args.elements;
         i += grid.blocks * grid.threads) {
      double sum = args.add != 0 ? static_cast<double>(args.out[i]) : 0.0;
      for (unsigned part = 0; part < args.parts; ++part) {
        sum = sum + static_cast<double>(args.sums[static_cast<Long>(part) * args.elements + i]);
      }
      args.out[i] = static_cast<float>(sum);
    }
  }
}

}  // namespace oocdnn::cuda
