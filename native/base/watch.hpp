// The host's clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace oocdnn {

// Measures from its construction on.
class Watch {
 public:
  [[nodiscard]] double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Nanoseconds of a clock that never goes back.
inline int64_t Now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

}  // namespace oocdnn
