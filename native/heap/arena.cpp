#include "heap/arena.hpp"

#include <algorithm>

namespace oocdnn::heap {
namespace {

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

std::vector<Interval> Unmapped(std::span<const Interval> ranges) {
  std::vector<Interval> found;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int64_t end = ranges[i].end();
    const int64_t next = i + 1 < ranges.size() ? ranges[i + 1].address : kNowhere;
    if (end < next) found.push_back({end, next - end});
  }
  return found;
}

Arena::Arena(std::vector<Interval> used, std::span<const Interval> ranges,
             std::span<const Interval> unmapped)
    : unmapped_(unmapped) {
  used = Merged(std::move(used));
  for (const Interval& range : ranges) {
    int64_t begin = range.address;
    for (const Interval& one : Within(used, std::span(&range, 1))) {
      if (one.address > begin) Give({begin, one.address - begin});
      begin = one.end();
    }
    if (begin < range.end()) Give({begin, range.end() - begin});
  }
}

int64_t Arena::Allocate(int64_t bytes) {
  auto best = Next({kNowhere, bytes - 1});
  if (best == free_.end()) return kNowhere;
  for (auto next = Next(*best); next != free_.end() && MostOf(*next) < MostOf(*best);) {
    best = next;
    next = Next(*best);
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

Arena::Free Arena::Next(const Interval& before) {
  const auto rank = [](const Interval& one) { return std::pair(one.bytes, one.address); };
  auto found = free_.end();
  for (auto one = free_.begin(); one != free_.end(); ++one) {
    const bool behind = rank(before) < rank(*one);
    if (behind && (found == free_.end() || rank(*one) < rank(*found))) found = one;
  }
  return found;
}

// The bytes that it would have if what is behind it were mapped.
int64_t Arena::MostOf(const Interval& free) const {
  for (const Interval& one : unmapped_) {
    if (one.address == free.end()) return free.bytes + one.bytes;
  }
  return free.bytes;
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
