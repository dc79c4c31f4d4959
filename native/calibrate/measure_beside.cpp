// The wires while other devices of the host copy too.
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "calibrate/busy_peer_load.hpp"
#include "calibrate/copy_bench.hpp"
#include "calibrate/measure.hpp"

namespace oocdnn {
namespace {

using BusyPeerLoads = std::vector<std::unique_ptr<BusyPeerLoad>>;

bool Known(int others, const Profile& profile) {
  return profile.wires.contains(Profile::BesideKey(others, kBesideRates[2]));
}

Status StartAnother(const Device& device, const DeviceOptions& options, BusyPeerLoads* others) {
  const int number = static_cast<int>(others->size());
  OOC_ASSIGN(std::unique_ptr<Device> made, MakePeer(device, options, number));
  OOC_ASSIGN(std::unique_ptr<BusyPeerLoad> started, BusyPeerLoad::Start(std::move(made)));
  others->push_back(std::move(started));
  return {};
}

// As alone, by the same tiles, but for what is chosen of many runs: the fastest may have met a
// moment in which the others did nothing.
Status Measure(Device& device, int64_t limit, const BusyPeerLoads& others, Profile* profile) {
  OOC_ASSIGN(const std::unique_ptr<CopyBench> bench,
             CopyBench::Make(device, limit, profile->shared_engines));
  OOC_ASSIGN(const std::unique_ptr<Rig> rig, bench->FirstRig(kCopyRows, kCopyWidth));
  const Host from = bench->In(kCopyWidth), to = bench->Out(kCopyWidth);
  const Timing fetch = MiddleOf(bench->Fetches(*rig, from, kManyRepetitions));
  const Timing drain = MiddleOf(bench->Drains(*rig, to, kManyRepetitions));
  const Timing both = bench->MiddleOfBoth(*rig, from, to, (fetch.seconds + drain.seconds) / 2);
  const bool busy =
      std::all_of(others.begin(), others.end(), [](const auto& other) { return other->copies(); });
  if (!busy || !fetch.ok() || !drain.ok() || !both.ok()) {
    return Error(Code::kDeviceError, "a copy failed that others went on beside");
  }
  const double bytes = rig->bytes(Operand::kX);
  const Timing* const timings[] = {&fetch, &drain, &both};
  for (size_t i = 0; i < std::size(kBesideRates); ++i) {
    const std::string key = Profile::BesideKey(static_cast<int>(others.size()), kBesideRates[i]);
    const double rate = RateOf(timings[i] == &both ? 2 * bytes : bytes, *timings[i]);
    profile->SetWire(key, rate, timings[i]->evidence());
  }
  return {};
}

}  // namespace

Status MeasureBeside(Device& device, const DeviceOptions& options, int64_t limit,
                     const std::function<Status()>& measured, Profile* profile) {
  const int all = CountPeers(device);
  BusyPeerLoads others;
  for (int count = 1; count <= all; ++count) {
    if (!Known(count, *profile)) {
      Status status;
      while (status.ok() && static_cast<int>(others.size()) < count) {
        status = StartAnother(device, options, &others);
      }
      if (status.ok()) status = Measure(device, limit, others, profile);
      if (!status.ok()) {
        Log(LogLevel::kWarn, "how fast the wires are beside %d busy GPUs is not measured: %s",
            count, status.message().c_str());
        return {};
      }
    }
    OOC_TRY(measured());
  }
  return {};
}

}  // namespace oocdnn
