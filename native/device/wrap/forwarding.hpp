// ForwardingDevice: hands every call to the device that it owns. The base of all wrappers, which
// override what they change and nothing else.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "device/device.hpp"

namespace oocdnn {

class ForwardingDevice : public Device {
 public:
  [[nodiscard]] const Capabilities& capabilities() const override { return inner_->capabilities(); }
  void Bind() override { inner_->Bind(); }
  void Unbind() override { inner_->Unbind(); }
  Result<int64_t> FreeBytes() override { return inner_->FreeBytes(); }

  Result<void*> Allocate(int64_t bytes) override { return inner_->Allocate(bytes); }
  void Free(void* buffer, int64_t bytes) override { inner_->Free(buffer, bytes); }
  Result<void*> AllocateHost(int64_t bytes) override { return inner_->AllocateHost(bytes); }
  void FreeHost(void* memory, int64_t bytes) override { inner_->FreeHost(memory, bytes); }

  Status PinHost(void* memory, int64_t bytes) override { return inner_->PinHost(memory, bytes); }
  void UnpinHost(void* memory, int64_t bytes) override { inner_->UnpinHost(memory, bytes); }
  Result<Location> Locate(const void* memory, int64_t bytes) override {
    return inner_->Locate(memory, bytes);
  }

  Result<Stream> CreateStream(const char* name) override { return inner_->CreateStream(name); }
  void DestroyStream(Stream stream) override { inner_->DestroyStream(stream); }
  Result<Stream> AdoptStream(void* native) override { return inner_->AdoptStream(native); }
  Result<Event> CreateEvent(EventUse use) override { return inner_->CreateEvent(use); }
  void DestroyEvent(Event event) override { inner_->DestroyEvent(event); }
  Status Record(Event event, Stream stream) override { return inner_->Record(event, stream); }
  Status Wait(Stream stream, Event event) override { return inner_->Wait(stream, event); }
  Status Synchronize(Event event) override { return inner_->Synchronize(event); }
  Status SynchronizeStream(Stream stream) override { return inner_->SynchronizeStream(stream); }
  double BusySeconds(Stream stream) override { return inner_->BusySeconds(stream); }

  Status Fetch(Stream stream, const Transfer& transfer) override {
    return inner_->Fetch(stream, transfer);
  }
  Status Drain(Stream stream, const Transfer& transfer) override {
    return inner_->Drain(stream, transfer);
  }
  Status Move(Stream stream, const TileMove& move) override { return inner_->Move(stream, move); }
  Status Fill(Stream stream, void* buffer, int64_t bytes, int byte) override {
    return inner_->Fill(stream, buffer, bytes, byte);
  }

  [[nodiscard]] const std::vector<EngineInfo>& engines() const override {
    return inner_->engines();
  }
  Result<std::unique_ptr<Executable>> Prepare(int engine, const TileOp& op) override {
    return inner_->Prepare(engine, op);
  }
  Status Run(Stream stream, Executable& executable, const RunArgs& args) override {
    return inner_->Run(stream, executable, args);
  }
  Status Finish(Stream stream, const FinishArgs& args) override {
    return inner_->Finish(stream, args);
  }
  Status PoolBackward(Stream stream, const PoolBackwardArgs& args) override {
    return inner_->PoolBackward(stream, args);
  }
  Status Norm(Stream stream, const NormArgs& args) override { return inner_->Norm(stream, args); }

 protected:
  explicit ForwardingDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] Device& inner() const { return *inner_; }

 private:
  std::unique_ptr<Device> inner_;
};

}  // namespace oocdnn
