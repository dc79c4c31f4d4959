// C functions that test calibration, on a device whose copies and runs take prescribed times.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "calibrate/measure.hpp"
#include "testing/export.hpp"
#include "testing/tensors.hpp"
#include "testing/timed_device.hpp"

namespace oocdnn::testing {
namespace {

constexpr int64_t kDeviceBytes = int64_t{1} << 28;

// Of one direction: bytes per second, and nanoseconds of a row that begins less than 64 KiB behind
// the one before, and of another.
struct CopyTimes {
  double rate, near, far;
};

// Elements, and where they are not behind the one before in memory.
struct Counted {
  int64_t elements = 0, near = 0, far = 0;
};

// One by one, in the order in which they lie in memory.
Counted Count(const Dims& extent, const Dims& stride, int64_t element_bytes) {
  std::array<size_t, 6> order{0, 1, 2, 3, 4, 5};
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return stride[a] > stride[b]; });
  Dims end;
  for (size_t d = 0; d < end.size(); ++d) end[d] = extent[order[d]];
  Counted counted;
  int64_t row = 0, last = -1;
  ForEach({}, end, [&](const Dims& i) {
    int64_t at = 0;
    for (size_t d = 0; d < i.size(); ++d) at += i[d] * stride[order[d]];
    if (at != last + 1) ++((at - row) * element_bytes >= 65536 ? counted.far : counted.near);
    if (at != last + 1) row = at;
    last = at;
    ++counted.elements;
  });
  return counted;
}

// Copies of tensors with rows apart, which are counted in the caller's memory one by one.
class TimedCopies final : public TimedDevice {
 public:
  TimedCopies(const CopyTimes& fetch, const CopyTimes& drain)
      : TimedDevice([](int64_t, int64_t) { return int64_t{1000}; }), fetch_(fetch), drain_(drain) {
    OverlapEngines();
  }
  Status Fetch(Stream, const Transfer& transfer) override {
    Say(transfer.tag, Nanoseconds(fetch_, transfer));
    return {};
  }
  Status Drain(Stream, const Transfer& transfer) override {
    Say(transfer.tag, Nanoseconds(drain_, transfer));
    return {};
  }
  Status Move(Stream, const TileMove& move) override {
    Say(move.tag, 1000);
    return {};
  }
  Status Finish(Stream, const FinishArgs& args) override {
    Say(args.tag, args.pooled.any() ? 3000 : 2000);
    return {};
  }
  Status PoolBackward(Stream, const PoolBackwardArgs& args) override {
    Say(args.tag, 4000);
    return {};
  }
  Status Norm(Stream, const NormArgs& args) override {
    Say(args.tag, 5000);
    return {};
  }

 private:
  int64_t Nanoseconds(const CopyTimes& times, const Transfer& transfer) {
    const int64_t size = SizeOf(transfer.view.dtype);
    const auto [place, is_new] = counted_.try_emplace({transfer.box.extent, transfer.view.stride});
    Counted& counted = place->second;
    if (is_new) counted = Count(transfer.box.extent, transfer.view.stride, size);
    const auto bytes = static_cast<double>(counted.elements * size);
    const double rows = static_cast<double>(counted.near) * times.near +
                        static_cast<double>(counted.far) * times.far;
    return static_cast<int64_t>(1e9 * bytes / times.rate + rows);
  }

  const CopyTimes fetch_, drain_;
  std::map<std::pair<Dims, Dims>, Counted> counted_;
};

}  // namespace

// What copies are found to cost. `fetch`, `drain`: the members of CopyTimes in turn; `text`: the
// profile, or why nothing was measured.
OOC_EXPORT int oocdnn_testing_measured_copies(const double fetch[3], const double drain[3],
                                              char* text, int64_t capacity) {
  TimedCopies device({fetch[0], fetch[1], fetch[2]}, {drain[0], drain[1], drain[2]});
  Profile profile;
  const Status status = MeasureCopies(device, kDeviceBytes, &profile);
  if (!status.ok()) return Answer(status, text, capacity);
  CopyText(ToText(profile), text, capacity);
  return 0;
}

// The profile with what arithmetic of the problem's kind is found to take, where it overlaps
// copies; `text`: the profile, or why it is none.
OOC_EXPORT int oocdnn_testing_measured_tiles(const Problem* problem, const char* profile_text,
                                             RunNanoseconds nanoseconds, char* text,
                                             int64_t capacity) {
  Result<Profile> profile = ParseProfile(profile_text);
  if (!profile.ok()) return Answer(profile.status(), text, capacity);
  TimedDevice device(nanoseconds);
  device.OverlapEngines();
  const Status status =
      MeasureArithmetic(device, *problem, TileGrid::kFew, kDeviceBytes, &profile.value());
  if (!status.ok()) return Answer(status, text, capacity);
  CopyText(ToText(profile.value()), text, capacity);
  return 0;
}

}  // namespace oocdnn::testing
