#include "heap/arena.hpp"

#include <algorithm>

namespace oocdnn::heap {
namespace {

constexpr int64_t kEndless = int64_t{1} << 61;
constexpr int64_t kApart = 512;

// Collects what Cut divides, in order of address.
class Divider {
 public:
  explicit Divider(int64_t least) : least_(least) {}

  void Leave(int64_t first, int64_t last) {
    if (last <= first) return;
    if (!made_.opened.empty() && made_.opened.back().end() == first) {
      made_.opened.back().bytes += last - first;
    } else {
      made_.opened.push_back({first, last - first});
    }
  }
  void Take(int64_t first, int64_t last) {
    if (last - first > least_) {
      made_.taken.push_back({first, last - first});
    } else {
      Leave(first, last);
    }
  }
  Divided Made() { return std::move(made_); }

 private:
  const int64_t least_;
  Divided made_;
};

// Intervals in order of address, those that touch as one.
std::vector<Interval> Merged(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> merged;
  for (const Interval& one : intervals) {
    if (!merged.empty() && one.address <= merged.back().end()) {
      merged.back().bytes = std::max(merged.back().end(), one.end()) - merged.back().address;
    } else {
      merged.push_back(one);
    }
  }
  return merged;
}

}  // namespace

Arena::Arena(std::vector<Interval> used, int64_t begin, std::span<const Interval> pages) {
  for (const Interval& page : pages) used.push_back({page.address, 0});
  std::sort(used.begin(), used.end());
  for (const Interval& one : used) {
    if (one.address > begin) {
      free_.push_back({begin, one.address - begin - (one.bytes == 0 ? kApart : 0)});
    }
    begin = std::max(begin, one.end());
  }
  free_.push_back({begin, kEndless});
}

int64_t Arena::Allocate(int64_t bytes) {
  auto best = free_.end();
  for (auto one = free_.begin(); one != free_.end(); ++one) {
    if (bytes <= one->bytes && (best == free_.end() || one->bytes < best->bytes)) best = one;
  }
  const int64_t address = best->address;
  if (best->bytes == bytes) {
    free_.erase(best);
  } else {
    best->address += bytes;
    best->bytes -= bytes;
  }
  return address;
}

void Arena::Give(const Interval& interval) {
  auto after = std::lower_bound(free_.begin(), free_.end(), Interval{interval.address, 0});
  const bool before_touches = after != free_.begin() && (after - 1)->end() == interval.address;
  const bool after_touches = after != free_.end() && after->address == interval.end();
  if (before_touches) {
    (after - 1)->bytes += interval.bytes + (after_touches ? after->bytes : 0);
    if (after_touches) free_.erase(after);
  } else if (after_touches) {
    *after = {interval.address, interval.bytes + after->bytes};
  } else {
    free_.insert(after, interval);
  }
}

std::vector<Interval> Within(std::span<const Interval> free, std::span<const Interval> ranges) {
  std::vector<Interval> found;
  for (const Interval& one : free) {
    for (const Interval& range : ranges) {
      const int64_t begin = std::max(one.address, range.address);
      const int64_t end = std::min(one.end(), range.end());
      if (begin < end) found.push_back({begin, end - begin});
    }
  }
  return found;
}

Divided Cut(std::span<const Interval> free, std::vector<Interval> holes,
            std::span<const Interval> ranges, int64_t least) {
  Divider divider(least);
  const std::vector<Interval> merged = Merged(std::move(holes));
  for (const Interval& one : free) {
    int64_t cursor = one.address;
    for (const Interval& part : Within(std::span(&one, 1), ranges)) {
      divider.Leave(cursor, part.address);
      cursor = part.address;
      for (const Interval& hole : merged) {
        const int64_t begin = std::max(hole.address, cursor);
        const int64_t end = std::min(hole.end(), part.end());
        if (end - begin <= least) continue;
        divider.Take(cursor, begin);
        divider.Leave(begin, end);
        cursor = end;
      }
      divider.Take(cursor, part.end());
      cursor = part.end();
    }
    divider.Leave(cursor, one.end());
  }
  return divider.Made();
}

}  // namespace oocdnn::heap
