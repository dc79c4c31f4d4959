// A device whose n-th call of one kind fails, and which counts the calls of every kind.
//
// A failing call does nothing, with one exception: a failing synchronisation still waits, so that a
// client that cleans up after the error does not free what is in use.
#include <array>
#include <atomic>

#include "device/wrap/forwarding.hpp"
#include "device/wrap/wrap.hpp"

namespace oocdnn {
namespace {

constexpr std::array<const char*, kFaultKinds> kKindNames{
    "allocation", "host allocation", "create", "copy", "run", "event call", "prepare"};

class FaultDevice final : public ForwardingDevice {
 public:
  FaultDevice(std::unique_ptr<Device> inner, const Fault& fault)
      : ForwardingDevice(std::move(inner)), fault_(fault) {}

  [[nodiscard]] int64_t calls(FaultKind kind) const { return calls_[static_cast<size_t>(kind)]; }

  Result<void*> Allocate(int64_t bytes) override {
    OOC_TRY(Count(FaultKind::kAllocate));
    return inner().Allocate(bytes);
  }
  Result<void*> AllocateHost(int64_t bytes) override {
    OOC_TRY(Count(FaultKind::kAllocateHost));
    return inner().AllocateHost(bytes);
  }
  Result<Stream> CreateStream(const char* name) override {
    OOC_TRY(Count(FaultKind::kCreate));
    return inner().CreateStream(name);
  }
  Result<Event> CreateEvent(EventUse use) override {
    OOC_TRY(Count(FaultKind::kCreate));
    return inner().CreateEvent(use);
  }
  Status Record(Event event, Stream stream) override {
    OOC_TRY(Count(FaultKind::kEvent));
    return inner().Record(event, stream);
  }
  Status Wait(Stream stream, Event event) override {
    OOC_TRY(Count(FaultKind::kEvent));
    return inner().Wait(stream, event);
  }
  Status Synchronize(Event event) override {
    Status injected = Count(FaultKind::kEvent);
    OOC_TRY(inner().Synchronize(event));
    return injected;
  }
  Status SynchronizeStream(Stream stream) override {
    Status injected = Count(FaultKind::kEvent);
    OOC_TRY(inner().SynchronizeStream(stream));
    return injected;
  }

  Status Fetch(Stream stream, const Transfer& transfer) override {
    OOC_TRY(Count(FaultKind::kCopy));
    return inner().Fetch(stream, transfer);
  }
  Status Drain(Stream stream, const Transfer& transfer) override {
    OOC_TRY(Count(FaultKind::kCopy));
    return inner().Drain(stream, transfer);
  }
  Status Move(Stream stream, const TileMove& move) override {
    OOC_TRY(Count(FaultKind::kCopy));
    return inner().Move(stream, move);
  }
  Status Fill(Stream stream, void* buffer, int64_t bytes, int byte) override {
    OOC_TRY(Count(FaultKind::kCopy));
    return inner().Fill(stream, buffer, bytes, byte);
  }

  Result<std::unique_ptr<Executable>> Prepare(int engine, const TileOp& op) override {
    OOC_TRY(Count(FaultKind::kPrepare));
    return inner().Prepare(engine, op);
  }
  Status Run(Stream stream, Executable& executable, const RunArgs& args) override {
    OOC_TRY(Count(FaultKind::kRun));
    return inner().Run(stream, executable, args);
  }
  Status Finish(Stream stream, const FinishArgs& args) override {
    OOC_TRY(Count(FaultKind::kRun));
    return inner().Finish(stream, args);
  }
  Status PoolBackward(Stream stream, const PoolBackwardArgs& args) override {
    OOC_TRY(Count(FaultKind::kRun));
    return inner().PoolBackward(stream, args);
  }
  Status Norm(Stream stream, const NormArgs& args) override {
    OOC_TRY(Count(FaultKind::kRun));
    return inner().Norm(stream, args);
  }

 private:
  // Counts one call of `kind`; the error to return where its turn has come.
  Status Count(FaultKind kind) {
    const int64_t call = ++calls_[static_cast<size_t>(kind)];
    const bool due = fault_.sticky ? call >= fault_.nth : call == fault_.nth;
    if (kind != fault_.kind || fault_.nth < 1 || !due) return {};
    const bool memory = kind == FaultKind::kAllocate || kind == FaultKind::kAllocateHost;
    return Error(memory ? Code::kOutOfMemory : Code::kDeviceError, "injected fault: %s #%lld",
                 kKindNames[static_cast<size_t>(kind)], static_cast<long long>(call));
  }

  const Fault fault_;
  std::array<std::atomic<int64_t>, kFaultKinds> calls_{};
};

}  // namespace

std::unique_ptr<Device> MakeFaultDevice(std::unique_ptr<Device> inner, const Fault& fault) {
  return std::make_unique<FaultDevice>(std::move(inner), fault);
}

int64_t FaultCalls(const Device& fault_device, FaultKind kind) {
  return static_cast<const FaultDevice&>(fault_device).calls(kind);
}

}  // namespace oocdnn
