// Arena: the large pool of an expandable segment by intervals, of the ranges of addresses that are
// mapped.
//
// It takes the addresses that PyTorch's allocator takes as long as nothing more is mapped, and is
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

// An address that no memory has.
constexpr int64_t kNowhere = int64_t{1} << 61;

// The gaps between ranges, and the one behind the last. Ranges are in order of address.
std::vector<Interval> Unmapped(std::span<const Interval> ranges);

class Arena {
 public:
  // The parts of the ranges that are not in use are free. Ranges are in order of address;
  // `unmapped` is the result of Unmapped for them, and outlives the arena.
  Arena(std::vector<Interval> used, std::span<const Interval> ranges,
        std::span<const Interval> unmapped);
  // With these free intervals, in order of address.
  Arena(std::vector<Interval> free, std::span<const Interval> unmapped)
      : free_(std::move(free)), unmapped_(unmapped) {}

  // In order of address; none touches another.
  [[nodiscard]] const std::vector<Interval>& free() const { return free_; }

  // The address at the beginning of the smallest interval that holds so many bytes, of equal ones
  // the lowest; kNowhere where none does. One that could grow counts as large as it could become.
  int64_t Allocate(int64_t bytes);
  void Give(const Interval& interval);

 private:
  using Free = std::vector<Interval>::iterator;

  // The smallest interval behind that one, by bytes and address.
  Free Next(const Interval& before);
  [[nodiscard]] int64_t MostOf(const Interval& free) const;

  std::vector<Interval> free_;
  std::span<const Interval> unmapped_;
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
