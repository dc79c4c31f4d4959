// The CPU device's memory: blocks of host memory under a bounded account.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/status.hpp"

namespace oocdnn::cpu {

constexpr int64_t kAlignment = 64;

// Page-aligned memory from the system, large blocks on huge pages where the system has them; null
// when there is none. `bytes` >= 1, and the same number gives it back.
void* TakePages(int64_t bytes);
void ReturnPages(void* memory, int64_t bytes);

// Blocks of at most `allowed` bytes in all. Any thread. Sizes count rounded up to kAlignment.
class Account {
 public:
  explicit Account(int64_t allowed) : allowed_(allowed) {}
  // kOutOfMemory, with requested, held and allowed, when the account or the system has no more.
  Result<void*> Allocate(int64_t bytes);
  void Free(void* block, int64_t bytes);
  [[nodiscard]] int64_t allowed() const { return allowed_; }
  [[nodiscard]] int64_t held() const { return held_.load(std::memory_order_relaxed); }

 private:
  bool Book(int64_t bytes);

  const int64_t allowed_;
  std::atomic<int64_t> held_{0};
};

}  // namespace oocdnn::cpu
