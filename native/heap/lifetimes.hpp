// Lifetimes: the large allocations of a step, in order. A moment is the index of a beginning or an
// end of an allocation.
#pragma once

#include <cstdint>
#include <vector>

#include "heap/requests.hpp"

namespace oocdnn::heap {

constexpr int32_t kNever = -1;

struct Lifetime {
  int64_t bytes = 0;
  int32_t begin = 0;
  int32_t end = kNever;    // the last moment if it outlives the step
  int32_t again = kNever;  // if it is carried: end of the previous step's allocation
  int32_t part = 0;        // index of the part in which it begins
  bool leaves = true;      // it ends in a later part
};

// The beginning or the end of a lifetime. Allocations carried over from the previous step have
// negative numbers: -1 minus the index in `carried`.
struct Event {
  bool begins = false;
  int32_t lifetime = 0;
};

// A group of requests, as lifetimes.
struct Part {
  bool steers = false;
  std::vector<int32_t> frees;
  std::vector<Event> events;
  int32_t ends = 0;  // moment of its end
};

class Lifetimes {
 public:
  // `requests`: as Prepare leaves them. `left`: the result of FindLeft.
  Lifetimes(const Requests& requests, const Rules& rules, const std::vector<Block*>& left);

  [[nodiscard]] const std::vector<Lifetime>& all() const { return lifetimes_; }
  [[nodiscard]] const Lifetime& operator[](size_t index) const { return lifetimes_[index]; }
  [[nodiscard]] size_t size() const { return lifetimes_.size(); }
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  // Lifetimes that begin in the previous step.
  [[nodiscard]] const std::vector<int32_t>& carried() const { return carried_; }
  // The moment at which the carried allocation `place` ends; the last one if it does not end.
  [[nodiscard]] int32_t OldEnd(size_t place) const;
  // A moment after all others.
  [[nodiscard]] int32_t last() const { return last_; }

 private:
  class Reader;

  std::vector<Lifetime> lifetimes_;
  std::vector<Part> parts_;
  std::vector<int32_t> carried_;
  std::vector<int32_t> old_ends_;
  int32_t last_ = 0;
};

}  // namespace oocdnn::heap
