// Deadline: when a search ends, by the clock or by who started it.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

namespace oocdnn::heap {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // `stops` is asked every few milliseconds.
  Deadline(Clock::time_point end, std::function<bool()> stops)
      : end_(end), asked_(Clock::now()), stops_(std::move(stops)) {}

  bool Passed() {
    constexpr auto kBetweenAsked = std::chrono::milliseconds(5);
    const auto now = Clock::now();
    if (!stopped_ && now - asked_ >= kBetweenAsked) {
      asked_ = now;
      stopped_ = stops_();
    }
    return stopped_ || now >= end_;
  }

 private:
  const Clock::time_point end_;
  Clock::time_point asked_;
  const std::function<bool()> stops_;
  bool stopped_ = false;
};

}  // namespace oocdnn::heap
