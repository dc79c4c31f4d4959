#include "library/call_pins.hpp"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace oocdnn {
namespace {

void* At(const AddressRange& range) {
  return reinterpret_cast<void*>(range.begin);  // NOLINT: an address
}

bool AnyTouches(const std::vector<AddressRange>& ranges, const AddressRange& asked) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const AddressRange& range) { return range.Touches(asked); });
}

}  // namespace

// A range is there from before it is pinned until it no longer is, so that whoever asks for a tier
// finds none that is let go meanwhile; and does not wait while the driver pins, which takes
// seconds.
struct CallPins::All {
  std::mutex mutex;
  std::vector<AddressRange> ranges;
};

// Never destroyed: calls may be running when the process ends. In a forked child nothing is pinned,
// and nobody would open the mutex that another thread had.
CallPins::All& CallPins::OfProcess() {
  static All* all = new All;
  static const int registered = pthread_atfork(nullptr, nullptr, [] { all = new All; });
  static_cast<void>(registered);
  return *all;
}

void CallPins::Forget(const AddressRange& range) {
  All& all = OfProcess();
  const std::lock_guard lock(all.mutex);
  const auto at = std::find(all.ranges.begin(), all.ranges.end(), range);
  if (at != all.ranges.end()) all.ranges.erase(at);
}

CallPins::~CallPins() {
  for (const AddressRange& range : pinned_) {
    device_.UnpinHost(At(range), range.bytes());
    Forget(range);
  }
}

Status CallPins::PinOne(const AddressRange& range) {
  pinned_.reserve(pinned_.size() + 1);
  {
    All& all = OfProcess();
    const std::lock_guard lock(all.mutex);
    if (AnyTouches(all.ranges, range))
      return Error(Code::kUnsupported, "another call has pinned it");
    all.ranges.push_back(range);
  }
  Status pinned = device_.PinHost(At(range), range.bytes());
  if (pinned.ok()) {
    pinned_.push_back(range);
  } else {
    Forget(range);
  }
  return pinned;
}

// What the output held before is where the output is.
std::vector<CallPins::Wanted> CallPins::WantedOf(const Problem& problem, const Pinned& which,
                                                 const OperandViews& tensors) {
  std::vector<Wanted> wanted;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const TensorView& tensor = tensors[i];
    const bool pageable = !tensor.in_file() && !IsReached(tensor.location.tier);
    const Operand where = operand == Operand::kOld ? problem.output() : operand;
    if (!which[Index(where)] || !problem.Has(operand) || !pageable) continue;
    wanted.push_back({operand, AddressesOf(problem, tensors, operand)});
  }
  return wanted;
}

// Memory of several operands is pinned once.
std::vector<CallPins::Wanted> CallPins::Joined(std::vector<Wanted> wanted) {
  std::sort(wanted.begin(), wanted.end(),
            [](const Wanted& a, const Wanted& b) { return a.range.begin < b.range.begin; });
  std::vector<Wanted> joined;
  for (const Wanted& one : wanted) {
    if (joined.empty() || !joined.back().range.Touches(one.range)) {
      joined.push_back(one);
      continue;
    }
    int64_t& end = joined.back().range.end;
    end = std::max(end, one.range.end);
  }
  return joined;
}

Status CallPins::Pin(const Problem& problem, const Pinned& which, int64_t most,
                     OperandViews* tensors) {
  Status first;
  const std::vector<Wanted> wanted = WantedOf(problem, which, *tensors);
  for (const auto& [operand, range] : Joined(wanted)) {
    Status pinned =
        range.bytes() <= most
            ? PinOne(range)
            : Error(Code::kOutOfMemory, "%lld bytes are to be pinned, %lld may be",
                    static_cast<long long>(range.bytes()), static_cast<long long>(most));
    if (pinned.ok()) {
      most -= range.bytes();
    } else if (first.ok()) {
      first = std::move(pinned).With(Name(operand, problem.direction));
    }
  }
  for (const Wanted& one : wanted) {
    if (!AnyTouches(pinned_, one.range)) continue;
    const Result<Location> location = device_.Locate(At(one.range), one.range.bytes());
    if (location.ok()) (*tensors)[Index(one.operand)].location = location.value();
  }
  return first;
}

Result<Location> CallPins::Locate(Device& device, const AddressRange& range) {
  All& all = OfProcess();
  const std::lock_guard lock(all.mutex);
  if (AnyTouches(all.ranges, range)) return Location{Tier::kPageable};
  return device.Locate(At(range), range.bytes());
}

}  // namespace oocdnn
