// HostMemory: host memory that a device reaches at full speed, for callers. It keeps the device
// alive, so it may outlive the context that made it.
#pragma once

#include <memory>
#include <utility>

#include "device/device.hpp"

namespace oocdnn {

class HostMemory {
 public:
  static Result<std::unique_ptr<HostMemory>> Allocate(std::shared_ptr<Device> device,
                                                      int64_t bytes) {
    OOC_ASSIGN(void* const data, device->AllocateHost(bytes));
    return std::unique_ptr<HostMemory>(new HostMemory(std::move(device), data, bytes, true));
  }
  // Of the caller's memory, which must live longer.
  static Result<std::unique_ptr<HostMemory>> Pin(std::shared_ptr<Device> device, void* data,
                                                 int64_t bytes) {
    OOC_TRY(device->PinHost(data, bytes));
    return std::unique_ptr<HostMemory>(new HostMemory(std::move(device), data, bytes, false));
  }
  ~HostMemory() {
    if (ours_) {
      device_->FreeHost(data_, bytes_);
    } else {
      device_->UnpinHost(data_, bytes_);
    }
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  [[nodiscard]] void* data() const { return data_; }

 private:
  HostMemory(std::shared_ptr<Device> device, void* data, int64_t bytes, bool ours)
      : device_(std::move(device)), data_(data), bytes_(bytes), ours_(ours) {}

  std::shared_ptr<Device> device_;
  void* data_;
  int64_t bytes_;
  bool ours_;
};

}  // namespace oocdnn
