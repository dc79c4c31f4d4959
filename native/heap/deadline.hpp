// Deadline: when a search ends, by the clock or by who started it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace oocdnn::heap {

// Told of walks that are done, every few milliseconds; false ends the search.
using Progress = std::function<bool(int64_t walks)>;

class Deadline {
 public:
  Deadline(double seconds, Progress progress)
      : began_(Clock::now()), told_(began_), seconds_(seconds), progress_(std::move(progress)) {}

  void EndWalk() { ++walks_; }
  [[nodiscard]] bool interrupted() const { return interrupted_; }
  bool Passed() {
    constexpr auto kBetweenTold = std::chrono::milliseconds(5);
    const auto now = Clock::now();
    if (!interrupted_ && now - told_ >= kBetweenTold) {
      told_ = now;
      interrupted_ = !progress_(walks_);
    }
    return interrupted_ || std::chrono::duration<double>(now - began_).count() > seconds_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  const Clock::time_point began_;
  Clock::time_point told_;
  const double seconds_;
  const Progress progress_;
  int64_t walks_ = 0;
  bool interrupted_ = false;
};

}  // namespace oocdnn::heap
