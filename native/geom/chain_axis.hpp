// Which rows of each tensor of a chain of layers a tile of its result needs, on one spatial axis.
//
// Row q of a layer's result reads rows q * stride + t * dilation - before of its input, for each t
// below `taps`, where these exist; all halos come from that one line, last layer first. What does
// not exist is no part of the tensor: to a convolution it is zero, and a pool passes it over.
#pragma once

#include <cstddef>
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

// A tensor that is added to a later one of the same extent, row by row: what is needed of `to` is
// needed of `from` too. x is number 0, the result of layer i number i + 1. All strides between the
// two are 1, so that the buffer of `from` has all rows of that of `to`: layers whose padding makes
// up for their reach read no less.
struct Skip {
  size_t from = 0, to = 0;
};

// The rows of a layer's input that these of its result need.
RowSpan InputOf(const AxisLayer& layer, const RowSpan& result);
// With what is needed of another tensor, whose rows lie in its buffer.
RowSpan Joined(const RowSpan& span, const RowSpan& other);

// The rows of x, and of each layer's result, that rows [begin, begin + length) of the last result
// need, as far as these exist. The buffers' extents depend on `length` alone.
std::vector<RowSpan> SpansOf(const std::vector<AxisLayer>& layers, const std::vector<Skip>& skips,
                             int64_t begin, int64_t length);

// Of a sweep, in which tile after tile moves on by `length` rows of the last result: a tensor's
// rows in a tile. The first `kept` of them the tile before has, from its row `advance` on; the rest
// is computed, or fetched.
struct SweptSpan {
  RowSpan rows;
  int64_t kept = 0, advance = 1;

  // What is new.
  [[nodiscard]] RowSpan Computed() const;
};

// Convolutions with a pool behind each, whose inputs alone are kept: what a pool reads of two tiles
// is computed in both. All rows that exist in a buffer are there.
std::vector<SweptSpan> SweptSpansOf(const std::vector<AxisLayer>& layers, int64_t begin,
                                    int64_t length);

// How far before row 0 of the last result a sweep begins, so that of what its first tile keeps of
// inner tensors nothing exists. So all tiles are alike, and each row is computed in one.
int64_t LeadOf(const std::vector<AxisLayer>& layers, int64_t length);

}  // namespace oocdnn
