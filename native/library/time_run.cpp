#include "library/time_run.hpp"

#include <algorithm>

#include "library/stopwatch.hpp"
#include "memory/block.hpp"
#include "memory/owners.hpp"

namespace oocdnn {
namespace {

constexpr double kEnough = 0.02;  // seconds, in which a long run has been seen often enough

}  // namespace

double TimeRun(Device& device, const Booking& booking) {
  if (std::any_of(booking.in_place.begin(), booking.in_place.end(), [](bool is) { return is; })) {
    return 0.0;
  }
  const Block block = DeviceBlock(device, booking.bytes);
  const Result<OwnedStream> stream = MakeStream(device, "time a run");
  if (block.get() == nullptr || !stream.ok()) return 0.0;
  if (!device.Fill(stream->get(), block.get(), booking.bytes, 0).ok()) return 0.0;
  RunArgs args;
  for (int i = 0; i < kOperands; ++i) {
    if (!booking.slot[i].empty()) args.tile[i] = block.get() + booking.slot[i].front();
  }
  args.workspace = block.get() + booking.workspace;
  const Timing timing = BestOf(
      device, stream->get(),
      [&](Span* span) {
        args.tag.span = span;
        return device.Run(stream->get(), *booking.usual.executable, args);
      },
      kEnough);
  return timing.ok() ? timing.seconds : 0.0;
}

}  // namespace oocdnn
