// The halos of a chain, as perfmodel/chain.py has them.
#include "geom/chain_axis.hpp"

#include <algorithm>
#include <optional>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

int64_t OriginOf(const AxisLayer& layer, int64_t row) { return row * layer.stride - layer.before; }
int64_t ReachOf(const AxisLayer& layer) { return (layer.taps - 1) * layer.dilation + 1; }

// The buffer of the layer's input for one of its result. What has to be there is not said.
RowSpan BufferOf(const AxisLayer& layer, const RowSpan& result) {
  return {OriginOf(layer, result.origin), (result.extent - 1) * layer.stride + ReachOf(layer), 0,
          0};
}

// With all that exists in the buffer, of a tensor that has `rows` in all.
RowSpan Filled(const RowSpan& buffer, int64_t rows) {
  const int64_t begin = std::clamp<int64_t>(buffer.origin, 0, rows);
  const int64_t end = std::clamp(buffer.origin + buffer.extent, begin, rows);
  return {buffer.origin, buffer.extent, begin, end};
}

// The least row of the input that one of these rows of the result reads. At the upper end a row may
// begin with taps that meet nothing, and the next row not.
std::optional<int64_t> FirstRead(const AxisLayer& layer, int64_t begin, int64_t end) {
  std::optional<int64_t> first;
  for (int64_t q = begin; q < end; ++q) {
    const int64_t origin = OriginOf(layer, q);
    const int64_t tap = std::max<int64_t>(0, -FloorDiv(origin, layer.dilation));
    const int64_t row = origin + tap * layer.dilation;
    if (tap < layer.taps && row < layer.in) first = std::min(first.value_or(row), row);
    if (origin >= 0) break;
  }
  return first;
}

// The last one, where there is a first.
int64_t LastRead(const AxisLayer& layer, int64_t begin, int64_t end) {
  int64_t last = 0;
  for (int64_t q = end - 1; q >= begin; --q) {
    const int64_t origin = OriginOf(layer, q);
    const int64_t tap = std::min(layer.taps - 1, FloorDiv(layer.in - 1 - origin, layer.dilation));
    const int64_t row = origin + tap * layer.dilation;
    if (tap >= 0 && row >= 0) last = std::max(last, row);
    if (origin + ReachOf(layer) <= layer.in) break;
  }
  return last;
}

}  // namespace

RowSpan InputOf(const AxisLayer& layer, const RowSpan& result) {
  RowSpan span = BufferOf(layer, result);
  const std::optional<int64_t> first = FirstRead(layer, result.begin, result.end);
  span.begin = first.value_or(0);
  span.end = first ? LastRead(layer, result.begin, result.end) + 1 : 0;
  return span;
}

RowSpan Joined(const RowSpan& span, const RowSpan& other) {
  if (other.begin >= other.end) return span;
  RowSpan joined = span;
  const bool any = span.begin < span.end;
  joined.begin = any ? std::min(span.begin, other.begin) : other.begin;
  joined.end = any ? std::max(span.end, other.end) : other.end;
  return joined;
}

std::vector<RowSpan> SpansOf(const std::vector<AxisLayer>& layers, const std::vector<Skip>& skips,
                             int64_t begin, int64_t length) {
  std::vector<RowSpan> spans(layers.size() + 1);
  spans.back() = {begin, length, begin, std::min(begin + length, layers.back().out)};
  for (size_t i = layers.size(); i-- > 0;) {
    spans[i] = InputOf(layers[i], spans[i + 1]);
    for (const Skip& skip : skips) {
      if (skip.from == i) spans[i] = Joined(spans[i], spans[skip.to]);
    }
  }
  return spans;
}

RowSpan SweptSpan::Computed() const {
  const int64_t begin = rows.origin + kept;
  const int64_t first = std::max(rows.begin, begin);
  return {begin, rows.extent - kept, first, std::max(rows.end, first)};
}

std::vector<SweptSpan> SweptSpansOf(const std::vector<AxisLayer>& layers, int64_t begin,
                                    int64_t length) {
  std::vector<SweptSpan> spans(layers.size() + 1);
  spans.back().rows = Filled({begin, length, 0, 0}, layers.back().out);
  spans.back().advance = length;
  for (size_t i = layers.size(); i-- > 0;) {
    const AxisLayer& layer = layers[i];
    spans[i].rows = Filled(BufferOf(layer, spans[i + 1].Computed()), layer.in);
    spans[i].advance = spans[i + 1].advance * layer.stride;
    const int64_t shared = spans[i].rows.extent - spans[i].advance;
    if (i % 2 == 0) spans[i].kept = std::max<int64_t>(shared, 0);
  }
  return spans;
}

int64_t LeadOf(const std::vector<AxisLayer>& layers, int64_t length) {
  const std::vector<SweptSpan> spans = SweptSpansOf(layers, 0, length);
  int64_t lead = 0;
  for (size_t i = 2; i < layers.size(); i += 2) {
    const int64_t strides = spans[i].advance / length;
    lead = std::max(lead, CeilDiv(spans[i].rows.origin + spans[i].kept, strides));
  }
  return lead;
}

}  // namespace oocdnn
