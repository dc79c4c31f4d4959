// Exact overlap of strided tensors in memory.
#pragma once

#include "geom/axes.hpp"

namespace oocdnn {

// A strided tensor: the address of element (0, ..., 0), strides in bytes, which may be zero or
// negative, and the bytes of one element.
struct StridedBox {
  int64_t address = 0;
  Dims dims{}, stride{};
  int64_t element = 0;
};

// True if an element of `a` and an element of `b` share a byte. The test is exact: the interleaved
// halves of one buffer do not overlap. The general problem is NP-hard, so the search is bounded
// and gives true where the bound is reached; layouts whose strides nest need a few steps.
bool SharesBytes(const StridedBox& a, const StridedBox& b);

}  // namespace oocdnn
