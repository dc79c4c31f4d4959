#include "library/call_pins.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include "library/operands.hpp"

namespace oocdnn {

// Whoever pins, lets go or asks for a tier has the mutex, so that what is asked for is not let go
// meanwhile.
struct CallPins::All {
  std::mutex mutex;
  std::vector<Range> ranges;

  [[nodiscard]] bool Touches(const char* begin, int64_t bytes) const {
    return std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) {
      return range.begin < begin + bytes && begin < range.begin + range.bytes;
    });
  }
};

// Never destroyed: calls may be running when the process ends.
CallPins::All& CallPins::OfProcess() {
  static All* const all = new All;
  return *all;
}

CallPins::~CallPins() {
  if (pinned_.empty()) return;
  All& all = OfProcess();
  const std::lock_guard lock(all.mutex);
  for (const Range& range : pinned_) {
    device_.UnpinHost(range.begin, range.bytes);
    all.ranges.erase(std::find(all.ranges.begin(), all.ranges.end(), range));
  }
}

Status CallPins::PinOne(const Range& range) {
  All& all = OfProcess();
  const std::lock_guard lock(all.mutex);
  pinned_.reserve(pinned_.size() + 1);
  all.ranges.reserve(all.ranges.size() + 1);
  OOC_TRY(device_.PinHost(range.begin, range.bytes));
  pinned_.push_back(range);
  all.ranges.push_back(range);
  return {};
}

Status CallPins::Pin(const Problem& problem, const Pinned& which, int64_t most,
                     HostTensors* tensors) {
  Status first;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    HostTensor& tensor = (*tensors)[i];
    const bool pageable = !tensor.in_file() && tensor.tier == Tier::kPageable;
    if (!which[i] || !problem.Has(operand) || !pageable) continue;
    const AddressRange address = AddressesOf(problem, *tensors, operand);
    const Range range{reinterpret_cast<char*>(address.begin),  // NOLINT: an address
                      address.end - address.begin};
    Status pinned = range.bytes <= most
                        ? PinOne(range)
                        : Error(Code::kOutOfMemory, "%lld bytes are to be pinned, %lld may be",
                                static_cast<long long>(range.bytes), static_cast<long long>(most));
    if (pinned.ok()) {
      most -= range.bytes;
      tensor.tier = Tier::kPinned;
    } else if (first.ok()) {
      first = std::move(pinned).With(Name(operand, problem.direction));
    }
  }
  return first;
}

Result<Tier> CallPins::TierOf(Device& device, const void* memory, int64_t bytes) {
  All& all = OfProcess();
  const std::lock_guard lock(all.mutex);
  if (all.Touches(static_cast<const char*>(memory), bytes)) return Tier::kPageable;
  return device.TierOf(memory, bytes);
}

}  // namespace oocdnn
