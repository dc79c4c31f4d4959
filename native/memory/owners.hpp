// Move-only owners of a device's streams and events.
#pragma once

#include <utility>

#include "device/device.hpp"

namespace oocdnn {

template <class Handle, void (Device::*Destroy)(Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(Device& device, Handle handle) : device_(&device), handle_(handle) {}
  Owned(Owned&& other) noexcept
      : device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) (device_->*Destroy)(handle_);
  }
  [[nodiscard]] Handle get() const { return handle_; }

 private:
  Device* device_ = nullptr;
  Handle handle_ = nullptr;
};

using OwnedStream = Owned<Stream, &Device::DestroyStream>;
using OwnedEvent = Owned<Event, &Device::DestroyEvent>;

inline Result<OwnedStream> MakeStream(Device& device, const char* name) {
  OOC_ASSIGN(Stream stream, device.CreateStream(name));
  return OwnedStream(device, stream);
}

inline Result<OwnedStream> AdoptStream(Device& device, void* native) {
  OOC_ASSIGN(Stream stream, device.AdoptStream(native));
  return OwnedStream(device, stream);
}

inline Result<OwnedEvent> MakeEvent(Device& device, EventUse use = EventUse::kStreams) {
  OOC_ASSIGN(Event event, device.CreateEvent(use));
  return OwnedEvent(device, event);
}

}  // namespace oocdnn
