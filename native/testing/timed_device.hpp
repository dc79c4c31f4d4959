// TimedDevice: a null device that does nothing and says how long it took. Runs of ten seconds and
// more it knows beforehand.
#pragma once

#include <memory>
#include <utility>

#include "device/wrap/forwarding.hpp"
#include "testing/null_device.hpp"

namespace oocdnn::testing {

// Nanoseconds of a run by the bytes of x and of y in the tile.
using RunNanoseconds = int64_t (*)(int64_t x_bytes, int64_t y_bytes);

class KnownExecutable final : public Executable {
 public:
  KnownExecutable(const Executable& known, double seconds) : Executable(known) {
    run_seconds_ = seconds;
  }
};

class TimedDevice : public ForwardingDevice {
 public:
  explicit TimedDevice(RunNanoseconds nanoseconds)
      : ForwardingDevice(MakeNullDevice(int64_t{1} << 32)),
        capabilities_(inner().capabilities()),
        nanoseconds_(nanoseconds) {
    capabilities_.tries_engines = true;
  }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  Result<std::unique_ptr<Executable>> Prepare(int engine, const TileOp& op) override {
    OOC_ASSIGN(std::unique_ptr<Executable> made, ForwardingDevice::Prepare(engine, op));
    constexpr int64_t kSecond = 1'000'000'000;
    const int64_t length = Nanoseconds(*made);
    if (length < 10 * kSecond) return made;
    return std::unique_ptr<Executable>(
        std::make_unique<KnownExecutable>(*made, static_cast<double>(length) / kSecond));
  }
  Status Run(Stream, Executable& executable, const RunArgs& args) override {
    Say(args.tag, Nanoseconds(executable));
    return {};
  }

  // As of a device that copies and computes at the same time.
  void OverlapEngines() { capabilities_.shared_engines = false; }

 protected:
  static void Say(const Tag& tag, int64_t nanoseconds) {
    if (tag.span != nullptr) *tag.span = {1, 1 + nanoseconds};
  }

 private:
  [[nodiscard]] int64_t Nanoseconds(const Executable& executable) const {
    return nanoseconds_(executable.layout(Operand::kX).bytes, executable.layout(Operand::kY).bytes);
  }

  Capabilities capabilities_;
  RunNanoseconds nanoseconds_;
};

}  // namespace oocdnn::testing
