// Copies: gather and scatter between any two strided arrays, on the GPU or in pinned memory.
#pragma once

#include "device/cuda/convert.cuh"

namespace oocdnn::cuda {

// Runs the statements with the name T meaning the type that `type` stands for. A macro, because a
// lambda may stay a call, and its arguments memory.
#define OOC_WITH_ELEMENT(type, T, ...)                          \
  switch (type) {                                               \
    case kF64: { using T = double; __VA_ARGS__ } break;         \
    case kF16: { using T = Half; __VA_ARGS__ } break;           \
    case kBF16: { using T = BFloat; __VA_ARGS__ } break;        \
    default: { using T = float; __VA_ARGS__ } break;            \
  }

struct Offsets {
  Long from, to;  // bytes
};

template <int kDims>
OOC_HOST_DEVICE Offsets OffsetsOf(unsigned number, const CopyDim (&dim)[kDims], int dims) {
  Offsets offsets{0, 0};
  OOC_UNROLL
  for (int d = 0; d < kDims; ++d) {
    if (d >= dims) break;
    const Long index = Take(&number, dim[d].extent);
    offsets.from += index * dim[d].from;
    offsets.to += index * dim[d].to;
  }
  return offsets;
}

// Pieces that a thread reads before it writes the first, so that many reads are on their way: a
// wire of 50 GB/s and 2 microseconds holds 100 KB.
constexpr int kInFlight = 4;

template <class To, class From, int kVector>
OOC_HOST_DEVICE Raw<sizeof(To) * kVector> ConvertRaw(const Raw<sizeof(From) * kVector>& raw) {
  const auto in = BitCast<Vector<From, kVector>>(raw);
  Vector<To, kVector> out;
  OOC_UNROLL
  for (int v = 0; v < kVector; ++v) out.at[v] = Convert<To>(in.at[v]);
  return BitCast<Raw<sizeof(To) * kVector>>(out);
}

// Moves the pieces at `at` of a strided copy; the first `count` of them exist.
template <class From, class To, int kVector>
OOC_HOST_DEVICE void MovePieces(const RowsArgs& args, const Offsets (&at)[kInFlight], int count) {
  const char* const from = static_cast<const char*>(args.from);
  char* const to = static_cast<char*>(args.to);
  Raw<sizeof(From) * kVector> held[kInFlight] = {};
  OOC_UNROLL
  for (int i = 0; i < kInFlight; ++i) {
    if (i < count) held[i] = LoadRaw<sizeof(From) * kVector>(from + at[i].from);
  }
  OOC_UNROLL
  for (int i = 0; i < kInFlight; ++i) {
    if (i < count) StoreRaw(ConvertRaw<To, From, kVector>(held[i]), to + at[i].to);
  }
}

// A vector is 16 bytes at most on either side.
template <class From, class To>
OOC_HOST_DEVICE void MovePair(const RowsArgs& args, const Offsets (&at)[kInFlight], int count) {
  constexpr int kBytes = sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To);
  if constexpr (kBytes <= 2) {
    if (args.vector == 8) return MovePieces<From, To, 8>(args, at, count);
  }
  if constexpr (kBytes <= 4) {
    if (args.vector == 4) return MovePieces<From, To, 4>(args, at, count);
  }
  if (args.vector == 2) return MovePieces<From, To, 2>(args, at, count);
  MovePieces<From, To, 1>(args, at, count);
}

// The types are told apart inside of the loop, so that the arithmetic of addresses is there once.
OOC_BODY void Rows(const RowsArgs& args, const Grid& grid) {
  const unsigned step = grid.blocks * grid.threads;
  OOC_THREADS(thread) {
    for (unsigned first = grid.block * grid.threads + thread; first < args.count;
         first += kInFlight * step) {
      Offsets at[kInFlight] = {};
      int count = 0;
      OOC_UNROLL
      for (int i = 0; i < kInFlight; ++i) {
        if (first + i * step >= args.count) break;
        at[i] = OffsetsOf(first + i * step, args.dim, args.dims);
        count = i + 1;
      }
      OOC_WITH_ELEMENT(args.from_type, From,
                       OOC_WITH_ELEMENT(args.to_type, To, MovePair<From, To>(args, at, count);))
    }
  }
}

// One block of a transposing copy: what it reads and writes, and how much of it exists.
struct Block {
  Offsets at;
  unsigned read_count, write_count;
};

OOC_HOST_DEVICE Block BlockAt(const TransposeArgs& args, unsigned number) {
  const unsigned read = Take(&number, args.read_blocks) << args.read_bits;
  const unsigned write = Take(&number, args.write_blocks) << args.write_bits;
  Block block{OffsetsOf(number, args.dim, args.dims), args.read_extent - read,
              args.write_extent - write};
  block.at.from += read * args.read_from + write * args.write_from;
  block.at.to += read * args.read_to + write * args.write_to;
  return block;
}

// Reads a block along its `read` dimension into rows of the `write` dimension in shared memory.
template <class From, class To, int kVector>
OOC_HOST_DEVICE void ReadBlock(const TransposeArgs& args, const Grid& grid, const Block& block) {
  const char* const from = static_cast<const char*>(args.from) + block.at.from;
  To* const shared = static_cast<To*>(grid.shared);
  const unsigned count = (1u << (args.read_bits + args.write_bits)) / kVector;
  const unsigned mask = (1u << args.read_bits) - 1;
  OOC_THREADS(thread) {
    for (unsigned first = thread; first < count; first += kInFlight * grid.threads) {
      Raw<sizeof(From) * kVector> held[kInFlight] = {};
      OOC_UNROLL
      for (int i = 0; i < kInFlight; ++i) {
        const unsigned at = (first + i * grid.threads) * kVector;
        const unsigned r = at & mask, w = at >> args.read_bits;
        if (r >= block.read_count || w >= block.write_count) continue;
        held[i] = LoadRaw<sizeof(From) * kVector>(from + r * args.read_from + w * args.write_from);
      }
      OOC_UNROLL
      for (int i = 0; i < kInFlight; ++i) {
        const unsigned at = (first + i * grid.threads) * kVector;
        const unsigned r = at & mask, w = at >> args.read_bits;
        if (w >> args.write_bits != 0) continue;
        const auto values = BitCast<Vector<From, kVector>>(held[i]);
        OOC_UNROLL
        for (int v = 0; v < kVector; ++v) {
          shared[(r + v) * args.pitch + w] = Convert<To>(values.at[v]);
        }
      }
    }
  }
}

template <class To, int kVector>
OOC_HOST_DEVICE void WriteBlock(const TransposeArgs& args, const Grid& grid, const Block& block) {
  char* const to = static_cast<char*>(args.to) + block.at.to;
  const To* const shared = static_cast<const To*>(grid.shared);
  const unsigned count = (1u << (args.read_bits + args.write_bits)) / kVector;
  const unsigned mask = (1u << args.write_bits) - 1;
  OOC_THREADS(thread) {
    for (unsigned number = thread; number < count; number += grid.threads) {
      const unsigned at = number * kVector;
      const unsigned w = at & mask, r = at >> args.write_bits;
      if (r >= block.read_count || w >= block.write_count) continue;
      Vector<To, kVector> values;
      OOC_UNROLL
      for (int v = 0; v < kVector; ++v) values.at[v] = shared[r * args.pitch + w + v];
      StoreRaw(BitCast<Raw<sizeof(To) * kVector>>(values),
               to + r * args.read_to + w * args.write_to);
    }
  }
}

template <class From, class To>
OOC_HOST_DEVICE void ReadSide(const TransposeArgs& args, const Grid& grid, const Block& block) {
  if constexpr (sizeof(From) <= 2) {
    if (args.read_vector == 8) return ReadBlock<From, To, 8>(args, grid, block);
  }
  if constexpr (sizeof(From) <= 4) {
    if (args.read_vector == 4) return ReadBlock<From, To, 4>(args, grid, block);
  }
  if (args.read_vector == 2) return ReadBlock<From, To, 2>(args, grid, block);
  ReadBlock<From, To, 1>(args, grid, block);
}

template <class To>
OOC_HOST_DEVICE void WriteSide(const TransposeArgs& args, const Grid& grid, const Block& block) {
  if constexpr (sizeof(To) <= 2) {
    if (args.write_vector == 8) return WriteBlock<To, 8>(args, grid, block);
  }
  if constexpr (sizeof(To) <= 4) {
    if (args.write_vector == 4) return WriteBlock<To, 4>(args, grid, block);
  }
  if (args.write_vector == 2) return WriteBlock<To, 2>(args, grid, block);
  WriteBlock<To, 1>(args, grid, block);
}

template <class From, class To>
OOC_HOST_DEVICE void TransposePair(const TransposeArgs& args, const Grid& grid) {
  for (unsigned number = grid.block; number < args.count; number += grid.blocks) {
    const Block block = BlockAt(args, number);
    ReadSide<From, To>(args, grid, block);
    OOC_BARRIER;
    WriteSide<To>(args, grid, block);
    OOC_BARRIER;
  }
}

OOC_BODY void Transpose(const TransposeArgs& args, const Grid& grid) {
  OOC_WITH_ELEMENT(args.from_type, From,
                   OOC_WITH_ELEMENT(args.to_type, To, TransposePair<From, To>(args, grid);))
}

template <class T>
OOC_HOST_DEVICE void ZeroTyped(const ZeroArgs& args, const Grid& grid) {
  const Long step = static_cast<Long>(grid.blocks) * grid.threads;
  OOC_THREADS(thread) {
    for (int b = 0; b < args.boxes; ++b) {
      const ZeroBox& box = args.box[b];
      for (Long number = static_cast<Long>(grid.block) * grid.threads + thread; number < box.count;
           number += step) {
        unsigned rest = static_cast<unsigned>(number);
        Long at = box.offset;
        OOC_UNROLL
        for (int d = kCopyDims - 1; d >= 0; --d) {
          at += rest % box.extent[d] * args.stride[d];
          rest /= box.extent[d];
        }
        static_cast<T*>(args.to)[at] = T();
      }
    }
  }
}

OOC_BODY void ZeroBoxes(const ZeroArgs& args, const Grid& grid) {
  if (args.size == 8) return ZeroTyped<double>(args, grid);
  if (args.size == 4) return ZeroTyped<float>(args, grid);
  ZeroTyped<unsigned short>(args, grid);
}

}  // namespace oocdnn::cuda
