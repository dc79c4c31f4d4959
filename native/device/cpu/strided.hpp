// Copies between two strided arrays of equal extents, and zeroing of one. This is the wire of the
// CPU device, so the common shapes (long runs, transposes) have kernels of their own.
#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.hpp"
#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

constexpr int kStridedDims = 6;

// One dimension: its extent, and its stride in elements in the source and in the destination.
struct StridedDim {
  int64_t extent = 1, from = 0, to = 0;
};

struct StridedCopy {
  const void* from = nullptr;  // of element (0, ..., 0), as is `to`
  DType from_type = DType::kFloat32;
  void* to = nullptr;
  DType to_type = DType::kFloat32;
  std::array<StridedDim, kStridedDims> dim{};  // in any order; strides of any sign
  // Zeros written before and behind each run along the dimension dim[pad_dim], whose stride in the
  // destination is 1: so a row is written once, from its first to its last element.
  int pad_dim = -1;
  int64_t head = 0, tail = 0;
};

// Elements that are written more than once are an error of the caller's; order is not defined.
void Copy(const StridedCopy& copy, Parallel& parallel);

struct StridedZero {
  void* to = nullptr;
  DType type = DType::kFloat32;
  std::array<StridedDim, kStridedDims> dim{};  // `from` is not looked at
};

void Zero(const StridedZero& zero, Parallel& parallel);

}  // namespace oocdnn::cpu
