// Block: memory of a device, or of its host, for one use: freed at the end of its scope.
#pragma once

#include "device/device.hpp"

namespace oocdnn {

// Null where the allocation failed.
class Block {
 public:
  using Free = void (Device::*)(void*, int64_t);
  Block(Device& device, Result<void*> block, int64_t bytes, Free free)
      : device_(device), bytes_(bytes), free_(free) {
    if (block.ok()) block_ = block.value();
  }
  ~Block() {
    if (block_ != nullptr) (device_.*free_)(block_, bytes_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  [[nodiscard]] char* get() const { return static_cast<char*>(block_); }

 private:
  Device& device_;
  const int64_t bytes_;
  const Free free_;
  void* block_ = nullptr;
};

inline Block DeviceBlock(Device& device, int64_t bytes) {
  return {device, device.Allocate(bytes), bytes, &Device::Free};
}
inline Block HostBlock(Device& device, int64_t bytes) {
  return {device, device.AllocateHost(bytes), bytes, &Device::FreeHost};
}

}  // namespace oocdnn
