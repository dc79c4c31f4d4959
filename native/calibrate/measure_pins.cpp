// Memory of the caller's that is pinned and let go again. It has been written, as tensors have:
// pages that are not there yet would be made meanwhile.
#include <string>
#include <utility>
#include <vector>

#include "base/watch.hpp"
#include "calibrate/measure.hpp"
#include "planner/stopwatch.hpp"

namespace oocdnn {
namespace {

constexpr size_t kBytes = size_t{128} << 20;

}  // namespace

void MeasurePinning(Device& device, Profile* profile) {
  const std::string key = Profile::PinKey();
  if (device.capabilities().reads_host || profile->Once(key)) return;
  std::vector<char> memory(kBytes, 1);
  std::vector<double> seconds;
  for (int i = 0; i < kRepetitions; ++i) {
    const Watch watch;
    if (!device.PinHost(memory.data(), kBytes).ok()) return;
    device.UnpinHost(memory.data(), kBytes);
    seconds.push_back(watch.Seconds());
  }
  const Timing timing = TimingOf(std::move(seconds));
  if (const double rate = RateOf(kBytes, timing); rate > 0.0) {
    profile->SetOnce(key, rate, timing.evidence());
  }
}

}  // namespace oocdnn
