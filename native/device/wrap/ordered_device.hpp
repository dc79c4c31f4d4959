// OrderedDevice: follows the order of its client's calls, and learns what the host has waited for.
#pragma once

#include <mutex>
#include <utility>

#include "device/wrap/forwarding.hpp"
#include "device/wrap/order.hpp"

namespace oocdnn {

class OrderedDevice : public ForwardingDevice {
 public:
  Status Record(Event event, Stream stream) override {
    const std::lock_guard lock(mutex_);
    OOC_TRY(inner().Record(event, stream));
    order_.Record(event, stream);
    return {};
  }
  Status Wait(Stream stream, Event event) override {
    const std::lock_guard lock(mutex_);
    OOC_TRY(inner().Wait(stream, event));
    order_.Wait(stream, event);
    return {};
  }
  // The host has waited even where the inner device reports an error of the work.
  Status Synchronize(Event event) override {
    const Order::Clock clock = Promised(event);
    Status status = inner().Synchronize(event);
    Synchronized(clock);
    return status;
  }
  Status SynchronizeStream(Stream stream) override {
    const Order::Clock clock = Promised(stream);
    Status status = inner().SynchronizeStream(stream);
    Synchronized(clock);
    return status;
  }

 protected:
  explicit OrderedDevice(std::unique_ptr<Device> inner) : ForwardingDevice(std::move(inner)) {}

  void Synchronized(const Order::Clock& clock) {
    const std::lock_guard lock(mutex_);
    order_.Synchronized(clock);
    Learn();
  }

  mutable std::mutex mutex_;  // synchronising calls may come from other threads
  Order order_;

 private:
  // The order knows of more that has run; with the lock held.
  virtual void Learn() = 0;
  template <class Handle>
  Order::Clock Promised(Handle handle) const {
    const std::lock_guard lock(mutex_);
    return order_.Of(handle);
  }
};

}  // namespace oocdnn
