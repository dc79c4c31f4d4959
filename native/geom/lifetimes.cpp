// The largest first, each at the lowest place that is free while it is needed.
#include "geom/lifetimes.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

bool Meet(const Lifetime& a, const Lifetime& b) { return a.from <= b.until && b.from <= a.until; }

// Behind those of `placed` that are in the way, which are in the order of their offsets.
int64_t LowestPlace(const Lifetime& lifetime, const std::vector<const Lifetime*>& placed,
                    int64_t alignment) {
  int64_t offset = 0;
  for (const Lifetime* other : placed) {
    if (!Meet(lifetime, *other)) continue;
    if (other->offset >= Add(offset, lifetime.bytes)) break;
    const int64_t end = Add(other->offset, other->bytes);
    offset = std::max(offset, Mul(CeilDiv(end, alignment), alignment));
  }
  return offset;
}

}  // namespace

int64_t Pack(std::vector<Lifetime>* lifetimes, int64_t alignment) {
  std::vector<Lifetime*> order;
  for (Lifetime& lifetime : *lifetimes) order.push_back(&lifetime);
  std::stable_sort(order.begin(), order.end(),
                   [](const Lifetime* a, const Lifetime* b) { return a->bytes > b->bytes; });
  std::vector<const Lifetime*> placed;
  int64_t bytes = 0;
  for (Lifetime* lifetime : order) {
    lifetime->offset = LowestPlace(*lifetime, placed, alignment);
    bytes = std::max(bytes, Add(lifetime->offset, lifetime->bytes));
    const auto behind = std::find_if(placed.begin(), placed.end(), [&](const Lifetime* other) {
      return other->offset > lifetime->offset;
    });
    placed.insert(behind, lifetime);
  }
  return bytes;
}

}  // namespace oocdnn
