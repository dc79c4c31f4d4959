// A C function for the host memory between sections of a chain: how much of it is pinned.
#include "library/section_buffers.hpp"
#include "device/wrap/forwarding.hpp"
#include "testing/export.hpp"
#include "testing/null_device.hpp"

namespace oocdnn::testing {
namespace {

// Counts the bytes of host memory that are allocated.
class CountingDevice final : public ForwardingDevice {
 public:
  CountingDevice() : ForwardingDevice(MakeNullDevice(0)) {}
  Result<void*> AllocateHost(int64_t bytes) override {
    OOC_ASSIGN(void* const memory, inner().AllocateHost(bytes));
    held_ += bytes;
    return memory;
  }
  void FreeHost(void* memory, int64_t bytes) override {
    if (memory != nullptr) held_ -= bytes;
    inner().FreeHost(memory, bytes);
  }
  [[nodiscard]] int64_t held() const { return held_; }

 private:
  int64_t held_ = 0;
};

}  // namespace

// Reserves `count` buffers of so many bytes, `rounds` times. After each: the bytes that are pinned,
// and those that slabs may pin.
OOC_EXPORT int oocdnn_testing_shelves(int64_t cap, const int64_t* bytes, int64_t count,
                                      int64_t rounds, int64_t* pinned, int64_t* left) {
  const auto device = std::make_shared<CountingDevice>();
  Slabs slabs(*device, cap);
  SectionBuffers buffers(device, cap);
  for (int64_t i = 0; i < rounds; ++i, bytes += count) {
    const Status status = buffers.Reserve(SectionBuffers::Bytes(bytes, bytes + count), &slabs);
    if (!status.ok()) return static_cast<int>(status.code());
    pinned[i] = device->held();
    left[i] = slabs.cap();
  }
  return 0;
}

}  // namespace oocdnn::testing
