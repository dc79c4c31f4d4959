// Convolutions of float32 on tensor cores, in three products of TF32 each. A factor is the sum of
// two TF32 numbers, x = high + low, which leaves out at most the last of its 24 bits:
//
//   x * w = low * high + high * low + high * high     (low * low is at most 2^-22 of it)
//
// Tensor cores truncate when they add, which is a bias that grows with the length of a sum. So they
// add kFp32x3Block terms only; the sums of the blocks are added by the multiprocessor, which rounds
// to the nearest, and those of kFp32x3Cut terms are added to what is in memory. The order of the
// terms depends on the problem alone, and so do the cuts of forward and backward data. The parts of
// a filter gradient depend on the GPU and the workspace too:
//
//   forward t r s c;  backward data t r s k;  backward filter n o p q
//
// A convolution is a product of matrices that are never formed: rows are pixels (filter gradients:
// output channels), columns are channels (filter gradients: taps and input channels). A block of
// threads computes tiles of kFp32x3Rows x kColumns of the result, in steps of some terms, while the
// factors of later steps are copied to shared memory (fp32x3_tile.cuh). There are two bodies of the
// kernels: by mma (fp32x3_mma.cuh), and by wgmma for GPUs of compute capability 9.0
// (fp32x3_wgmma.cuh), which is faster there.
#pragma once

#include "device/cuda/fp32x3_mma.cuh"
#include "device/cuda/fp32x3_tile.cuh"
#include "device/cuda/fp32x3_wgmma.cuh"

namespace oocdnn::cuda {

#ifdef __CUDACC__
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
using Fp32x3Body = Fp32x3Wgmma;
#else
using Fp32x3Body = Fp32x3Mma;
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

template <int kColumns>
OOC_HOST_DEVICE void GatherTiles(const Fp32x3Args& args, const Grid& grid) {
  if (args.vector == 4) {
    MultiplyTiles<kColumns, GatherFactors<kColumns, 4, Fp32x3Body>>(args, grid, Fp32x3Body());
  } else {
    MultiplyTiles<kColumns, GatherFactors<kColumns, 1, Fp32x3Body>>(args, grid, Fp32x3Body());
  }
}
template <int kColumns, bool kTransposed>
OOC_HOST_DEVICE void FilterTiles(const Fp32x3Args& args, const Grid& grid) {
  if (args.vector == 4) {
    MultiplyTiles<kColumns, FilterFactors<kColumns, 4, kTransposed, Fp32x3Body>>(args, grid,
                                                                                 Fp32x3Body());
  } else {
    MultiplyTiles<kColumns, FilterFactors<kColumns, 1, kTransposed, Fp32x3Body>>(args, grid,
                                                                                 Fp32x3Body());
  }
}

#else  // these have no TF32, and the host has no engine with it there (Gpu::has_tf32)

template <int kColumns>
OOC_HOST_DEVICE void GatherTiles(const Fp32x3Args&, const Grid&) {}
template <int kColumns, bool kTransposed>
OOC_HOST_DEVICE void FilterTiles(const Fp32x3Args&, const Grid&) {}

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
      float* const out = args.out + tile.out + static_cast<Long>(row) * args.row_step +
                         static_cast<Long>(column) * args.column_step;
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

// The factor that a pixel reads with a tap.
inline const float* FactorOf(const Fp32x3Args& args, const float* source, const Fp32x3Reader& pixel,
                             const Fp32x3Reader& tap) {
  const int element = ElementOf(args, pixel, tap);
  return element < 0 ? nullptr : source + element;
}

template <int kColumns>
inline void GatherTiles(const Fp32x3Args& args, const Grid& grid) {
  for (unsigned number = grid.block; number < args.tiles; number += grid.blocks) {
    const Fp32x3Tile tile = TileOf(args, number, kColumns);
    const float* const source = args.source_data + tile.group * args.source_group;
    const float* const filter = args.other_data + tile.group * args.other_group;
    MultiplyTile(
        args, tile, kColumns,
        [&](unsigned row, unsigned term) {
          return FactorOf(args, source, PixelOf(args, row, args.rows), TapOf(args, term, tile.end));
        },
        [&](unsigned column, unsigned term) {
          return filter + (static_cast<Long>(column) * args.terms + term);
        });
  }
}

template <int kColumns, bool kTransposed>
inline void FilterTiles(const Fp32x3Args& args, const Grid& grid) {
  for (unsigned number = grid.block; number < args.tiles; number += grid.blocks) {
    const Fp32x3Tile tile = TileOf(args, number, kColumns);
    const float* const source = args.source_data + tile.group * args.source_group;
    const float* const gradient = args.other_data + tile.group * args.other_group;
    const auto of_gradient = [&](unsigned channel, unsigned term) {
      return gradient + (static_cast<Long>(term) * args.other_pitch + channel);
    };
    const auto of_source = [&](unsigned place, unsigned term) {
      return FactorOf(args, source, PixelOf(args, term, tile.end),
                      TapOf(args, place, kTransposed ? args.rows : args.columns));
    };
    if constexpr (kTransposed) {
      MultiplyTile(args, tile, kColumns, of_source, of_gradient);
    } else {
      MultiplyTile(args, tile, kColumns, of_gradient, of_source);
    }
  }
}

#endif

OOC_BODY void Fp32x3Gather(const Fp32x3Args& args, const Grid& grid) {
  GatherTiles<kFp32x3Columns>(args, grid);
}
OOC_BODY void Fp32x3GatherNarrow(const Fp32x3Args& args, const Grid& grid) {
  GatherTiles<kFp32x3Columns / 2>(args, grid);
}
OOC_BODY void Fp32x3Filter(const Fp32x3Args& args, const Grid& grid) {
  FilterTiles<kFp32x3Columns, false>(args, grid);
}
OOC_BODY void Fp32x3FilterNarrow(const Fp32x3Args& args, const Grid& grid) {
  FilterTiles<kFp32x3Columns / 2, false>(args, grid);
}
OOC_BODY void Fp32x3FilterTransposed(const Fp32x3Args& args, const Grid& grid) {
  FilterTiles<kFp32x3Columns / 2, true>(args, grid);
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
