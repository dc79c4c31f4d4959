// Tensors of tests: values in double with their six extents, elements of any dtype in memory, the
// addresses of a TileLayout, random fillings.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.hpp"

namespace oocdnn::testing {

struct Tensor {
  Dims dims{};
  std::vector<double> values;  // dense, last dimension fastest

  Tensor() = default;
  explicit Tensor(const Dims& extents, double value = 0.0);
  [[nodiscard]] double& at(const Dims& index) { return values[Offset(index)]; }
  [[nodiscard]] double at(const Dims& index) const { return values[Offset(index)]; }

 private:
  [[nodiscard]] size_t Offset(const Dims& index) const;
};

int64_t ElementsOf(const Dims& dims);

// Calls visit(index) for every index with begin <= index < end, last dimension fastest.
template <class Visit>
void ForEach(const Dims& begin, const Dims& end, Visit&& visit) {
  for (size_t d = 0; d < begin.size(); ++d) {
    if (begin[d] >= end[d]) return;
  }
  Dims index = begin;
  while (true) {
    visit(index);
    int d = 5;
    while (d >= 0 && ++index[d] == end[d]) {
      index[d] = begin[d];
      --d;
    }
    if (d < 0) return;
  }
}

// The element at `offset` elements from `data`.
double Load(const void* data, DType dtype, int64_t offset);
void Store(void* data, DType dtype, int64_t offset, double value);
// A byte of such an element, the lowest first.
uint32_t ByteOf(DType dtype, double value, int64_t byte);
// `value` as an element of `dtype` holds it.
double Rounded(DType dtype, double value);

// Element offset of an index of a tile that is not opaque.
int64_t OffsetIn(const TileLayout& layout, const Dims& index);
// A plain layout, dense or with the channel fastest; and one with channels in blocks of `block`,
// which pads the merged channels to whole blocks.
TileLayout PlainLayout(DType dtype, const Dims& dims, bool channels_last = false);
TileLayout BlockedLayout(DType dtype, const Dims& dims, int64_t block);

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  uint64_t Next();
  // A whole number in [low, high].
  int64_t Between(int64_t low, int64_t high);
  // In [-1, 1), with 24 bits.
  double Real();

 private:
  uint64_t state_;
};

// Small whole numbers, whose sums and products stay exact in every accumulator.
Tensor Integers(const Dims& dims, Random& random);
// Reals that `dtype` holds exactly.
Tensor Reals(const Dims& dims, DType dtype, Random& random);

}  // namespace oocdnn::testing
