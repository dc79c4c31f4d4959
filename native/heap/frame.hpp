// Frame: the range of addresses in which a step's large allocations are to be, and the check of a
// steering there by simulation of the whole allocator.
#pragma once

#include <cstdint>
#include <vector>

#include "heap/acts.hpp"
#include "heap/arena.hpp"
#include "heap/lifetimes.hpp"
#include "heap/requests.hpp"

namespace oocdnn::heap {

struct Steering {
  int64_t end = 0;       // address up to which everything is mapped before the first step
  int64_t reserved = 0;  // most bytes taken from the driver
  // In order. What no act gives back is given back at the end of the step.
  std::vector<Act> acts;
};

class Frame {
 public:
  // Of requests with groups as Prepare leaves them, within `limit` bytes. Both stay.
  static Result<Frame> Make(const Heap& heap, const Requests& requests, int64_t limit);

  [[nodiscard]] const Lifetimes& lifetimes() const { return lifetimes_; }
  [[nodiscard]] int64_t base() const { return base_; }
  [[nodiscard]] int64_t end() const { return end_; }
  // Largest bytes that no request of the large pool takes.
  [[nodiscard]] int64_t least() const { return heap_.rules.small_bytes; }
  // Behind the end, mapped because of what is in use there.
  [[nodiscard]] const std::vector<Interval>& pages() const { return pages_; }
  // All that is mapped, in order of address.
  [[nodiscard]] std::vector<Interval> Ranges() const;
  // In use for ever.
  [[nodiscard]] const std::vector<Interval>& stays() const { return stays_; }
  // What the step before leaves, by place among the carried ones; without bytes where it is none of
  // the lifetimes.
  [[nodiscard]] const std::vector<Interval>& old() const { return old_; }
  // Both.
  [[nodiscard]] std::vector<Interval> Used() const;
  // True if the mapped bytes suffice for the allocations that exist at the same time.
  [[nodiscard]] bool IsPossible() const;
  // Whether an allocation takes nothing more from the driver.
  [[nodiscard]] bool IsMapped(const Interval& interval) const;

  // Whether the simulation of the whole allocator agrees with the acts; then `reserved` is set.
  Result<bool> Check(Steering* steering) const;

 private:
  class Checker;

  Frame(const Heap& heap, const Requests& requests, const Allocator& allocator,
        const std::vector<Block*>& left);
  void FindEnd(int64_t room);
  [[nodiscard]] std::vector<Interval> PagesBehind() const;

  const Heap& heap_;
  const Requests& requests_;
  Lifetimes lifetimes_;
  int64_t base_;
  int64_t end_ = 0;
  std::vector<Interval> pages_, stays_, old_;
};

}  // namespace oocdnn::heap
