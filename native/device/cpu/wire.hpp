// Wire: a link of a given rate that carries one transfer at a time.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/watch.hpp"

namespace oocdnn::cpu {

// Sleeps until a time of `Now`.
void SleepUntil(int64_t time_ns);

class Wire {
 public:
  explicit Wire(double gb_per_s) : bytes_per_ns_(gb_per_s) {}  // 1 GB/s is 1 byte/ns
  [[nodiscard]] bool limited() const { return bytes_per_ns_ > 0; }
  // Books the wire for `bytes` from now, or from when it is free, and returns when they are over.
  int64_t Book(int64_t bytes);

 private:
  const double bytes_per_ns_;
  std::atomic<int64_t> free_at_{0};
};

}  // namespace oocdnn::cpu
