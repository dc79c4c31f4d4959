// The largest first, each at the lowest place that is free while it is needed.
#include "geom/lives.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

bool Meet(const Life& a, const Life& b) { return a.from <= b.until && b.from <= a.until; }

// Behind those of `placed` that are in the way, which are in the order of their offsets.
int64_t LowestPlace(const Life& life, const std::vector<const Life*>& placed, int64_t alignment) {
  int64_t offset = 0;
  for (const Life* other : placed) {
    if (!Meet(life, *other)) continue;
    if (other->offset >= Add(offset, life.bytes)) break;
    const int64_t end = Add(other->offset, other->bytes);
    offset = std::max(offset, Mul(CeilDiv(end, alignment), alignment));
  }
  return offset;
}

}  // namespace

int64_t Pack(std::vector<Life>* lives, int64_t alignment) {
  std::vector<Life*> order;
  for (Life& life : *lives) order.push_back(&life);
  std::stable_sort(order.begin(), order.end(),
                   [](const Life* a, const Life* b) { return a->bytes > b->bytes; });
  std::vector<const Life*> placed;
  int64_t bytes = 0;
  for (Life* life : order) {
    life->offset = LowestPlace(*life, placed, alignment);
    bytes = std::max(bytes, Add(life->offset, life->bytes));
    const auto behind = std::find_if(placed.begin(), placed.end(), [&](const Life* other) {
      return other->offset > life->offset;
    });
    placed.insert(behind, life);
  }
  return bytes;
}

}  // namespace oocdnn
