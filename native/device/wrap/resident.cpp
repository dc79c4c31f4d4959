// A device whose operands are never behind a wire. Its callers have no streams.
#include <utility>

#include "device/wrap/forwarding.hpp"
#include "device/wrap/wrap.hpp"

namespace oocdnn {
namespace {

class ResidentDevice final : public ForwardingDevice {
 public:
  explicit ResidentDevice(std::unique_ptr<Device> inner) : ForwardingDevice(std::move(inner)) {}
  Result<Location> Locate(const void*, int64_t) override { return Location{Tier::kDevice}; }
  Result<Stream> AdoptStream(void*) override { return Stream{}; }
};

}  // namespace

std::unique_ptr<Device> MakeResidentDevice(std::unique_ptr<Device> inner) {
  return std::make_unique<ResidentDevice>(std::move(inner));
}

}  // namespace oocdnn
