// Which rows of each tensor of a chain of layers a tile of its result needs, on one spatial axis.
//
// Row q of a layer's result reads rows q * stride + t * dilation - before of its input, for each t
// below `taps`, where these exist; all halos come from that one line, last layer first. What does
// not exist is no part of the tensor: to a convolution it is zero, and a pool passes it over.
#pragma once

#include <cstdint>
#include <vector>

namespace oocdnn {

// A convolution or a pool on one axis, and the rows of its input and its result.
struct AxisLayer {
  int64_t taps = 1, stride = 1, dilation = 1, before = 0;
  int64_t in = 1, out = 1;
};

// A tile's rows of one tensor: its buffer has rows [origin, origin + extent), and of them
// [begin, end) have to be there. The rest of the buffer is zero, or passed over.
struct RowSpan {
  int64_t origin = 0, extent = 1, begin = 0, end = 1;

  bool operator==(const RowSpan&) const = default;
};

// The rows of a layer's input that these of its result need.
RowSpan InputOf(const AxisLayer& layer, const RowSpan& result);

// The rows of x, and of each layer's result, that rows [begin, begin + length) of the last result
// need, as far as these exist. The buffers' extents depend on `length` alone.
std::vector<RowSpan> SpansOf(const std::vector<AxisLayer>& layers, int64_t begin, int64_t length);

}  // namespace oocdnn
