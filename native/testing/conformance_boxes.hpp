// Random boxes, layouts and ranges for the cases about copies.
#pragma once

#include "testing/tensors.hpp"

namespace oocdnn::testing {

constexpr DType kAllDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                DType::kBFloat16};

Dims RandomDims(Random& random);
// A box that may begin before the tensor and end behind it, or miss it.
Box RandomBox(const Dims& dims, Random& random);
// A part of [0, extent) that is not empty.
struct Part {
  Dims begin{}, end{};
};
Part RandomPart(const Dims& extent, Random& random);
// The fewest rows on an axis over which a window fits or, with Pool::ceil, there is one.
int64_t LeastExtent(const Pool& pool, int axis);
Operand RandomOperand(Random& random);  // kX, kW or kY
// Plain, channels-last or blocked; filters are plain.
TileLayout RandomLayout(const Device& device, DType dtype, const Dims& extent, Operand operand,
                        Random& random);

// Whether tile element `index` of the box is an element of the tensor; its index there in *at.
bool IsValid(const Box& box, const Dims& index, Dims* at);

}  // namespace oocdnn::testing
