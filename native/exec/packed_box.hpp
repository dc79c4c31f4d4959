// A box of a strided tensor and its packed form: which runs of elements they share. Arithmetic
// only; files and memory are copied along the same runs.
#pragma once

#include <vector>

#include "device/device.hpp"

namespace oocdnn {

// Dimensions from the largest to the smallest step in the tensor.
std::array<int, 6> SlowestFirst(const Dims& stride);

// How boxes of a tensor are packed. `gapped` is a dimension whose gaps are packed along, because
// reading them is cheaper than going around; -1: none. It is the same for all boxes of a tensor, so
// that no box takes more than one that has all of its extents.
struct Packing {
  DType dtype = DType::kFloat32;
  Dims stride{};  // of the tensor, in elements
  int gapped = -1;
};
// For a tensor whose largest box has `extent` elements.
Packing PackingOf(DType dtype, const Dims& stride, const Dims& extent);

// A packed copy of a box of `extent` elements keeps the tensor's order of dimensions, so that long
// runs stay long.
struct PackedBox {
  Dims stride{};
  int64_t bytes = 0;
};
PackedBox PackedLayout(const Packing& packing, const Dims& extent);

// The runs of a box: `bytes` at a time are contiguous in the tensor and in the packed box.
class Runs {
 public:
  // Gaps are read along with what lies between them, but never written.
  Runs(const Packing& packing, const Dims& begin, const Dims& end, bool writing);

  [[nodiscard]] int64_t count() const { return count_; }  // 0: the box is empty
  [[nodiscard]] int64_t bytes() const { return bytes_; }  // of one run

  // Walks the runs in order, from any of them on.
  class Cursor {
   public:
    Cursor(const Runs& runs, int64_t first);
    void Next();
    [[nodiscard]] int64_t tensor() const { return tensor_; }  // bytes from element (0, ..., 0)
    [[nodiscard]] int64_t packed() const { return packed_; }  // bytes from the box's beginning

   private:
    const Runs& runs_;
    std::array<int64_t, 6> at_{};
    int64_t tensor_, packed_ = 0;
  };

 private:
  struct Outer {
    int64_t extent = 1, tensor = 0, packed = 0;  // steps in bytes
  };
  std::vector<Outer> outer_;  // slowest first
  int64_t count_ = 1, bytes_ = 0, start_ = 0;
};

}  // namespace oocdnn
