// What a convolution is, as plain loops in double: the suite's own reference.
#pragma once

#include <array>

#include "testing/tensors.hpp"

namespace oocdnn::testing {

// The operands that a direction reads.
std::vector<Operand> InputsOf(Direction direction);

using Operands = std::array<Tensor, kOperands>;

// The output tensor of the convolution of the inputs in `operands`.
Tensor Convolve(Direction direction, const ConvShape& shape, const Operands& operands);
// The same of absolute values: what rounding errors are measured against.
Tensor Magnitude(Direction direction, const ConvShape& shape, const Operands& operands);
// Terms of the longest sum.
int64_t TermsOf(Direction direction, const ConvShape& shape);

// A convolution of these sizes, with symmetric pads and the output's extents computed.
ConvShape MakeShape(int64_t n, int64_t g, int64_t k, int64_t c, const Spatial& in,
                    const Spatial& filter, const Spatial& pad = {0, 0, 0},
                    const Spatial& stride = {1, 1, 1}, const Spatial& dilation = {1, 1, 1});

}  // namespace oocdnn::testing
