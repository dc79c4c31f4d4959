// Arena: the large pool of an expandable segment by intervals: a range of mapped addresses, and
// pages behind it that are mapped because of what is in use there.
//
// It takes the addresses that PyTorch's allocator takes while the whole range is mapped, and is
// faster than the simulation of the whole allocator.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace oocdnn::heap {

struct Interval {
  int64_t address = 0;
  int64_t bytes = 0;

  [[nodiscard]] int64_t end() const { return address + bytes; }
  friend auto operator<=>(const Interval&, const Interval&) = default;
};

class Arena {
 public:
  // With the free intervals between those in use, from an address on. What is free at the beginning
  // of the pages is no neighbour of the addresses in front of them, which are not mapped.
  Arena(std::vector<Interval> used, int64_t begin, std::span<const Interval> pages);
  // With these free intervals, in order of address.
  explicit Arena(std::vector<Interval> free) : free_(std::move(free)) {}

  // In order of address. What is not in use behind the last one is free without end: a block that
  // can grow comes last, as large as it can become.
  [[nodiscard]] const std::vector<Interval>& free() const { return free_; }

  // The address at the beginning of the smallest interval that holds so many bytes, of equal ones
  // the lowest.
  int64_t Allocate(int64_t bytes);
  void Give(const Interval& interval);

 private:
  std::vector<Interval> free_;
};

// The parts of free intervals that lie in the ranges.
std::vector<Interval> Within(std::span<const Interval> free, std::span<const Interval> ranges);

// Free intervals divided: the open ones are the holes, the others are to be taken.
struct Divided {
  std::vector<Interval> opened;
  std::vector<Interval> taken;  // each more than `least` bytes, since no others can be taken
};

// Outside of the ranges, which are in order of address, everything is open.
Divided Cut(std::span<const Interval> free, std::vector<Interval> holes,
            std::span<const Interval> ranges, int64_t least);

}  // namespace oocdnn::heap
