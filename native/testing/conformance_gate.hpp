// Gate: a copy that a test can hold up or let fail, by way of a layout that copies itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "device/cpu/engine.hpp"
#include "testing/conformance_rig.hpp"

namespace oocdnn::testing {

// Works on devices that share memory with the host. Must outlive the rig whose stream runs it. A
// closed gate gives way after half a second, so that a device that runs everything at once ends.
class Gate final : public cpu::NativeLayout {
 public:
  explicit Gate(bool open = true, Status result = {});

  // Enqueues the copy; kUnsupported where the device cannot be held up.
  Status Enqueue(Rig& rig, Stream stream);
  void Open();
  // Whether the copy has run to its end.
  [[nodiscard]] bool passed() const { return passed_; }
  // Milliseconds that an open gate takes.
  void Delay(int milliseconds) { milliseconds_ = milliseconds; }

  [[nodiscard]] bool CanCopy(const Transfer&) const override { return true; }
  Status Fetch(const Transfer& transfer, cpu::Parallel& parallel) const override;
  Status Drain(const Transfer& transfer, cpu::Parallel& parallel) const override;

 private:
  TileLayout layout_;
  Status result_;
  int milliseconds_ = 0;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool open_;
  mutable std::atomic<bool> passed_{false};
};

}  // namespace oocdnn::testing
