// C functions for the arena of a heap, and for the division of free intervals.
#include "heap/arena.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "testing/export.hpp"

namespace {

using oocdnn::heap::Interval;

// Of pairs of an address and bytes.
std::vector<Interval> IntervalsOf(const int64_t* pairs, int64_t count) {
  std::vector<Interval> made;
  made.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) made.push_back({pairs[2 * i], pairs[2 * i + 1]});
  return made;
}

void Copy(const std::vector<Interval>& intervals, int64_t* pairs, int64_t* count) {
  *count = static_cast<int64_t>(intervals.size());
  for (const Interval& one : intervals) {
    *pairs++ = one.address;
    *pairs++ = one.bytes;
  }
}

}  // namespace

// An arena of ranges, in which other intervals are in use: arrays of pairs of an address and bytes,
// with their counts. Each of `count` calls is an address and bytes: they are given back, or, where
// the address is below 0, allocated, and the call gets their address.
OOC_EXPORT void oocdnn_testing_heap_arena(const int64_t* const* arrays, const int64_t* counts,
                                          int64_t* calls, int64_t count) {
  const std::vector<Interval> ranges = IntervalsOf(arrays[0], counts[0]);
  const std::vector<Interval> unmapped = oocdnn::heap::Unmapped(ranges);
  oocdnn::heap::Arena arena(IntervalsOf(arrays[1], counts[1]), ranges, unmapped);
  for (int64_t* call = calls; call != calls + 2 * count; call += 2) {
    if (call[0] < 0) {
      call[0] = arena.Allocate(call[1]);
    } else {
      arena.Give({call[0], call[1]});
    }
  }
}

// Arrays of pairs of an address and bytes, with their counts, which `opened` and `taken` get.
OOC_EXPORT void oocdnn_testing_heap_cut(const int64_t* const* arrays, const int64_t* counts,
                                        int64_t least, int64_t* opened, int64_t* opened_count,
                                        int64_t* taken, int64_t* taken_count) {
  const oocdnn::heap::Divided made =
      oocdnn::heap::Cut(IntervalsOf(arrays[0], counts[0]), IntervalsOf(arrays[1], counts[1]),
                        IntervalsOf(arrays[2], counts[2]), least);
  Copy(made.opened, opened, opened_count);
  Copy(made.taken, taken, taken_count);
}
