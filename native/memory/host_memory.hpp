// HostMemory: host memory that a device reaches at full speed, for callers. It keeps the device
// alive, so it may outlive the context that made it.
#pragma once

#include <sys/mman.h>

#include <memory>
#include <utility>

#include "device/device.hpp"

namespace oocdnn {

class HostMemory {
 public:
  static Result<std::unique_ptr<HostMemory>> Allocate(std::shared_ptr<Device> device,
                                                      int64_t bytes) {
    OOC_ASSIGN(void* const data, device->AllocateHost(bytes));
    return std::unique_ptr<HostMemory>(new HostMemory(std::move(device), data, bytes, Is::kOurs));
  }
  // Of the caller's memory, which must live longer. What is as good already stays as it is.
  static Result<std::unique_ptr<HostMemory>> Pin(std::shared_ptr<Device> device, void* data,
                                                 int64_t bytes) {
    OOC_ASSIGN(const Location location, device->Locate(data, bytes));
    const bool pageable = location.tier == Tier::kPageable;
    if (pageable) OOC_TRY(device->PinHost(data, bytes));
    return std::unique_ptr<HostMemory>(
        new HostMemory(std::move(device), data, bytes, pageable ? Is::kPinned : Is::kOthers));
  }
  ~HostMemory() {
    if (is_ == Is::kOurs) {
      device_->FreeHost(data_, bytes_);
    } else {
      Unpin();
    }
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  [[nodiscard]] void* data() const { return data_; }
  // Makes ordinary memory of it, which a forked child inherits. What was as good already stays so.
  void Unpin() {
    if (is_ == Is::kOthers || !std::exchange(pinned_, false)) return;
    device_->UnpinHost(data_, bytes_);
    if (is_ == Is::kOurs) madvise(data_, static_cast<size_t>(bytes_), MADV_DOFORK);
  }

 private:
  enum class Is : int { kOurs, kPinned, kOthers };  // who gives it back, and how
  HostMemory(std::shared_ptr<Device> device, void* data, int64_t bytes, Is is)
      : device_(std::move(device)), data_(data), bytes_(bytes), is_(is) {}

  std::shared_ptr<Device> device_;
  void* data_;
  int64_t bytes_;
  Is is_;
  bool pinned_ = true;
};

}  // namespace oocdnn
