// A device that has only so many bytes: it keeps the account and refuses what would pass it. The
// wrapped device may still run out earlier.
#include <algorithm>
#include <atomic>

#include "base/checked.hpp"
#include "device/wrap/forwarding.hpp"
#include "device/wrap/wrap.hpp"

namespace oocdnn {
namespace {

class LimitDevice final : public ForwardingDevice {
 public:
  LimitDevice(std::unique_ptr<Device> inner, int64_t bytes)
      : ForwardingDevice(std::move(inner)), allowed_(bytes) {}

  Result<int64_t> FreeBytes() override {
    OOC_ASSIGN(const int64_t free, inner().FreeBytes());
    return std::min(free, std::max<int64_t>(allowed_ - held_, 0));
  }

  Result<void*> Allocate(int64_t bytes) override {
    const int64_t held = held_;
    if (Add(held, bytes) > allowed_) {
      return Error(Code::kOutOfMemory,
                   "%lld bytes requested with %lld held, but the device is limited to %lld; "
                   "free buffers or ask for at most %lld",
                   static_cast<long long>(bytes), static_cast<long long>(held),
                   static_cast<long long>(allowed_),
                   static_cast<long long>(std::max<int64_t>(allowed_ - held, 0)))
          .WithDetail(Add(held, bytes));
    }
    OOC_ASSIGN(void* buffer, inner().Allocate(bytes));
    held_ += bytes;
    return buffer;
  }

  void Free(void* buffer, int64_t bytes) override {
    inner().Free(buffer, bytes);
    if (buffer != nullptr) held_ -= bytes;
  }

 private:
  const int64_t allowed_;
  std::atomic<int64_t> held_{0};
};

}  // namespace

std::unique_ptr<Device> MakeLimitDevice(std::unique_ptr<Device> inner, int64_t bytes) {
  return std::make_unique<LimitDevice>(std::move(inner), bytes);
}

}  // namespace oocdnn
