// TimedDevice: a null device that does nothing and says how long it took. Runs of ten seconds and
// more it knows beforehand. It may have a second engine, "twin", that takes other times.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/wrap/forwarding.hpp"
#include "testing/null_device.hpp"

namespace oocdnn::testing {

// Nanoseconds of a run by the bytes of x and of y in the tile.
using RunNanoseconds = int64_t (*)(int64_t x_bytes, int64_t y_bytes);

class TimedExecutable final : public Executable {
 public:
  // `seconds`: 0 where only a run tells them.
  TimedExecutable(const Executable& plain, const std::string& engine, double seconds)
      : Executable(plain) {
    engine_ = engine;
    run_seconds_ = seconds;
  }
};

class TimedDevice : public ForwardingDevice {
 public:
  explicit TimedDevice(RunNanoseconds nanoseconds, RunNanoseconds twin = nullptr)
      : ForwardingDevice(MakeNullDevice(int64_t{1} << 32)),
        capabilities_(inner().capabilities()),
        engines_(inner().engines()),
        nanoseconds_(nanoseconds),
        twin_(twin) {
    capabilities_.tries_engines = true;
    if (twin == nullptr) return;
    engines_.push_back(engines_.front());
    engines_.back().name = kTwin;
  }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] const std::vector<EngineInfo>& engines() const override { return engines_; }
  Result<std::unique_ptr<Executable>> Prepare(int engine, const TileOp& op) override {
    OOC_ASSIGN(const std::unique_ptr<Executable> plain, ForwardingDevice::Prepare(0, op));
    const std::string& name = engines_[static_cast<size_t>(engine)].name;
    constexpr int64_t kSecond = 1'000'000'000;
    const int64_t length = Nanoseconds(TimedExecutable(*plain, name, 0.0));
    const double known =
        length < 10 * kSecond ? 0.0 : static_cast<double>(length) / static_cast<double>(kSecond);
    return std::unique_ptr<Executable>(std::make_unique<TimedExecutable>(*plain, name, known));
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
    const RunNanoseconds of_tile = executable.engine() == kTwin ? twin_ : nanoseconds_;
    return of_tile(executable.layout(Operand::kX).bytes, executable.layout(Operand::kY).bytes);
  }

  static constexpr const char* kTwin = "twin";
  Capabilities capabilities_;
  std::vector<EngineInfo> engines_;
  RunNanoseconds nanoseconds_, twin_;
};

}  // namespace oocdnn::testing
