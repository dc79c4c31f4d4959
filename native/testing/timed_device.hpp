// TimedDevice: a null device that does nothing and says how long it took.
#pragma once

#include <memory>
#include <utility>

#include "device/wrap/forwarding.hpp"
#include "testing/null_device.hpp"

namespace oocdnn::testing {

// Nanoseconds of a run by the bytes of x and of y in the tile.
using RunNanoseconds = int64_t (*)(int64_t x_bytes, int64_t y_bytes);

class TimedDevice : public ForwardingDevice {
 public:
  explicit TimedDevice(RunNanoseconds nanoseconds)
      : ForwardingDevice(MakeNullDevice(int64_t{1} << 32)),
        capabilities_(inner().capabilities()),
        nanoseconds_(nanoseconds) {
    capabilities_.tries_engines = true;
  }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  Status Run(Stream, Executable& executable, const RunArgs& args) override {
    const int64_t length =
        nanoseconds_(executable.layout(Operand::kX).bytes, executable.layout(Operand::kY).bytes);
    Say(args.tag, length);
    return {};
  }

  // As of a device that copies and computes at the same time.
  void OverlapEngines() { capabilities_.shared_engines = false; }

 protected:
  static void Say(const Tag& tag, int64_t nanoseconds) {
    if (tag.span != nullptr) *tag.span = {1, 1 + nanoseconds};
  }

 private:
  Capabilities capabilities_;
  RunNanoseconds nanoseconds_;
};

}  // namespace oocdnn::testing
