// Arena: the device memory of a context. Plans book offsets when they are made; a run is granted
// the one block behind them. The block grows on demand up to the budget and never shrinks by
// itself, so that after warm-up no call allocates.
#pragma once

#include <cstdint>

#include "device/device.hpp"

namespace oocdnn {

// Hands out offsets one after the other; arithmetic only.
class Offsets {
 public:
  explicit Offsets(int64_t alignment) : alignment_(alignment) {}
  int64_t Book(int64_t bytes);
  [[nodiscard]] int64_t total() const { return total_; }

 private:
  int64_t alignment_, total_ = 0;
};

class Arena {
 public:
  explicit Arena(Device& device) : device_(device) {}
  // An arena of memory that is lent: it neither grows nor frees it.
  Arena(Device& device, void* block, int64_t bytes)
      : device_(device), lent_(true), block_(block), bytes_(bytes), peak_(bytes) {}
  ~Arena() { Release(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Makes the block at least `bytes` long. The old block goes first, so that the two never exist
  // together; nothing may be using it. On failure the arena is empty, or what was lent.
  Status Reserve(int64_t bytes);
  void Release();
  [[nodiscard]] void* At(int64_t offset) const { return static_cast<char*>(block_) + offset; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] int64_t peak() const { return peak_; }
  void ForgetPeak() { peak_ = bytes_; }
  [[nodiscard]] int64_t allocations() const { return allocations_; }

 private:
  Device& device_;
  const bool lent_ = false;
  void* block_ = nullptr;
  int64_t bytes_ = 0, peak_ = 0, allocations_ = 0;
};

}  // namespace oocdnn
