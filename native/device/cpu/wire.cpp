#include "device/cpu/wire.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace oocdnn::cpu {

void SleepUntil(int64_t time_ns) {
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::nanoseconds(time_ns)));
}

int64_t Wire::Book(int64_t bytes) {
  const auto length = static_cast<int64_t>(static_cast<double>(bytes) / bytes_per_ns_);
  int64_t free_at = free_at_.load();
  int64_t end = 0;
  do {
    end = std::max(free_at, Now()) + length;
  } while (!free_at_.compare_exchange_weak(free_at, end));
  return end;
}

}  // namespace oocdnn::cpu
