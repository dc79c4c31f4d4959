// Plain tile layouts.
#pragma once

#include <array>

#include "base/checked.hpp"
#include "device/device.hpp"

namespace oocdnn {

using DimOrder = std::array<int, 6>;

// The layout of `shape` without gaps, whose dimensions lie in `order`, the fastest last. `slack`
// more elements lie behind the last one, so that a vector may read past it.
inline TileLayout PlainLayout(DType dtype, const Dims& shape, const DimOrder& order,
                              int64_t slack = 0) {
  TileLayout layout;
  layout.dtype = dtype;
  layout.shape = shape;
  int64_t elements = 1;
  for (int i = 5; i >= 0; --i) {
    layout.stride[order[i]] = elements;
    elements = Mul(elements, shape[order[i]]);
  }
  layout.bytes = Mul(Add(elements, slack), SizeOf(dtype));
  return layout;
}

// N G C D H W (G K C T R S for filters): as the caller's dense tensors.
constexpr DimOrder kDenseOrder{0, 1, 2, 3, 4, 5};
// N D H W G C: the merged channel fastest.
constexpr DimOrder kChannelsLastOrder{0, 3, 4, 5, 1, 2};
// G C T R S K: a filter with the output channel fastest.
constexpr DimOrder kOutputFastestOrder{0, 2, 3, 4, 5, 1};
// G K T R S C: a filter with the input channel fastest.
constexpr DimOrder kInputFastestOrder{0, 1, 3, 4, 5, 2};
// K C T R S G: a depthwise filter with the group fastest.
constexpr DimOrder kGroupFastestOrder{1, 2, 3, 4, 5, 0};

}  // namespace oocdnn
