// A C function for the halos of a chain on one axis, which the tests hold to the reference.
#include "geom/chain_axis.hpp"
#include "testing/export.hpp"

namespace {

// The six numbers of each.
std::vector<oocdnn::AxisLayer> LayersOf(const int64_t* layers, int64_t count) {
  std::vector<oocdnn::AxisLayer> all;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t* one = layers + 6 * i;
    all.push_back({one[0], one[1], one[2], one[3], one[4], one[5]});
  }
  return all;
}

}  // namespace

// `layers`: of each of `count` layers the six numbers of AxisLayer; `skips`: of each of `skipped`
// the two of Skip. `spans` gets the four of each of count + 1 spans.
OOC_EXPORT void oocdnn_testing_chain_spans(const int64_t* layers, int64_t count,
                                           const int64_t* skips, int64_t skipped, int64_t begin,
                                           int64_t length, int64_t* spans) {
  const std::vector<oocdnn::AxisLayer> all = LayersOf(layers, count);
  std::vector<oocdnn::Skip> over;
  over.reserve(static_cast<size_t>(skipped));
  for (int64_t i = 0; i < skipped; ++i) {
    over.push_back({static_cast<size_t>(skips[2 * i]), static_cast<size_t>(skips[2 * i + 1])});
  }
  for (const oocdnn::RowSpan& span : oocdnn::SpansOf(all, over, begin, length)) {
    for (const int64_t number : {span.origin, span.extent, span.begin, span.end}) {
      *spans++ = number;
    }
  }
}

// The same of tile `number` of a sweep; `spans` gets of each span `kept` too. Returns the lead.
OOC_EXPORT int64_t oocdnn_testing_swept_spans(const int64_t* layers, int64_t count, int64_t number,
                                              int64_t length, int64_t* spans) {
  const std::vector<oocdnn::AxisLayer> all = LayersOf(layers, count);
  const int64_t lead = oocdnn::LeadOf(all, length);
  for (const auto& span : oocdnn::SweptSpansOf(all, number * length - lead, length)) {
    const oocdnn::RowSpan& rows = span.rows;
    for (const int64_t value : {rows.origin, rows.extent, rows.begin, rows.end, span.kept}) {
      *spans++ = value;
    }
  }
  return lead;
}
