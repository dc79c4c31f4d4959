// The block kernel of a transposing copy.
//
// Each line of the source is read once and whole, whatever the distance between lines: lines a
// power of two apart share cache sets and would otherwise push each other out.
#pragma once

#include <cstdint>
#include <type_traits>

#include "device/cpu/convert_run.hpp"

namespace oocdnn::cpu {

constexpr int64_t kTransposeBlock = 16;

using Quad = float __attribute__((vector_size(16), aligned(4), may_alias));

// to[r * to_row + c] = from[r + c * from_col] for a 4x4 block of 32-bit elements.
inline void TransposeQuads(const float* from, int64_t from_col, float* to, int64_t to_row) {
  const Quad a = *reinterpret_cast<const Quad*>(from);
  const Quad b = *reinterpret_cast<const Quad*>(from + from_col);
  const Quad c = *reinterpret_cast<const Quad*>(from + 2 * from_col);
  const Quad d = *reinterpret_cast<const Quad*>(from + 3 * from_col);
  const Quad ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Quad ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Quad cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Quad cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *reinterpret_cast<Quad*>(to) = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  *reinterpret_cast<Quad*>(to + to_row) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  *reinterpret_cast<Quad*>(to + 2 * to_row) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  *reinterpret_cast<Quad*>(to + 3 * to_row) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

// to[r * to_row + c] = from[r + c * from_col] for r < rows, c < cols, both at most the block.
template <class From, class To>
void TransposeBlock(const From* from, int64_t from_col, To* to, int64_t to_row, int64_t rows,
                    int64_t cols) {
  constexpr int64_t kBlock = kTransposeBlock;
  if constexpr (!std::is_same_v<From, To>) {
    To block[kBlock * kBlock];
    for (int64_t c = 0; c < cols; ++c) ConvertRun(from + c * from_col, block + c * kBlock, rows);
    TransposeBlock<To, To>(block, kBlock, to, to_row, rows, cols);
  } else if (std::is_same_v<To, float> && rows == kBlock && cols == kBlock) {
    for (int64_t c = 0; c < kBlock; c += 4) {
      for (int64_t r = 0; r < kBlock; r += 4) {
        TransposeQuads(reinterpret_cast<const float*>(from + c * from_col + r), from_col,
                       reinterpret_cast<float*>(to + r * to_row + c), to_row);
      }
    }
  } else {
    To block[kBlock][kBlock];
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t r = 0; r < rows; ++r) block[c][r] = from[c * from_col + r];
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) to[r * to_row + c] = block[c][r];
    }
  }
}

}  // namespace oocdnn::cpu
