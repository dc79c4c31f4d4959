// A C door to the halos of a chain on one axis, which the tests hold to the reference.
#include "geom/chain_axis.hpp"
#include "testing/door.hpp"

// `layers`: of each of `count` layers the six numbers of AxisLayer. `spans` gets the four of each
// of count + 1 spans.
OOC_DOOR void oocdnn_testing_chain_spans(const int64_t* layers, int64_t count, int64_t begin,
                                         int64_t length, int64_t* spans) {
  std::vector<oocdnn::AxisLayer> all;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t* one = layers + 6 * i;
    all.push_back({one[0], one[1], one[2], one[3], one[4], one[5]});
  }
  for (const oocdnn::RowSpan& span : oocdnn::SpansOf(all, begin, length)) {
    for (const int64_t number : {span.origin, span.extent, span.begin, span.end}) {
      *spans++ = number;
    }
  }
}
