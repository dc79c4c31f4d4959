// Lives: the large allocations of a step, in order. Moments are numbers of their beginnings and
// ends.
#pragma once

#include <cstdint>
#include <vector>

#include "heap/requests.hpp"

namespace oocdnn::heap {

constexpr int32_t kNever = -1;

struct Life {
  int64_t bytes = 0;
  int32_t begin = 0;
  int32_t end = kNever;    // the last moment where it outlives the step
  int32_t again = kNever;  // up to when the step before has it too, where it is carried
  int32_t part = 0;        // in which it begins
  bool leaves = true;      // it does not end in that one
};

// The beginning or the end of a life. What is carried from the step before has numbers below 0:
// -1 - its place among the carried ones.
struct Event {
  bool begins = false;
  int32_t life = 0;
};

// A group of requests in terms of lives.
struct Part {
  bool steers = false;
  std::vector<int32_t> frees;
  std::vector<Event> events;
  int32_t ends = 0;  // moment of its end
};

class Lives {
 public:
  // Requests are as Prepare leaves them; `left` is what FindLeft found.
  Lives(const Requests& requests, const Rules& rules, const std::vector<Block*>& left);

  [[nodiscard]] const std::vector<Life>& all() const { return lives_; }
  [[nodiscard]] const Life& operator[](size_t index) const { return lives_[index]; }
  [[nodiscard]] size_t size() const { return lives_.size(); }
  [[nodiscard]] const std::vector<Part>& parts() const { return parts_; }
  // Lives that the step before has too.
  [[nodiscard]] const std::vector<int32_t>& carried() const { return carried_; }
  // Moment at which a carried allocation ends; the last one where it does not.
  [[nodiscard]] int32_t OldEnd(size_t place) const;
  // A moment behind all others.
  [[nodiscard]] int32_t last() const { return last_; }

 private:
  class Reader;

  std::vector<Life> lives_;
  std::vector<Part> parts_;
  std::vector<int32_t> carried_;
  std::vector<int32_t> old_ends_;
  int32_t last_ = 0;
};

}  // namespace oocdnn::heap
