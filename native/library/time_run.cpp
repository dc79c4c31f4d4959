#include "library/time_run.hpp"

#include <array>

#include "library/stopwatch.hpp"
#include "memory/arena.hpp"
#include "memory/block.hpp"
#include "memory/owners.hpp"

namespace oocdnn {
namespace {

constexpr double kEnough = 0.02;  // seconds, in which a long run has been seen often enough

}  // namespace

double TimeRun(Device& device, const Booking& booking, int64_t most_bytes) {
  Offsets beside(device.capabilities().alignment);
  beside.Book(booking.bytes);
  std::array<int64_t, kOperands> at{};
  for (int i = 0; i < kOperands; ++i) {
    if (booking.in_place[i]) at[i] = beside.Book(booking.usual.layout[i].bytes);
    if (!booking.slot[i].empty()) at[i] = booking.slot[i].front();
  }
  if (beside.total() > most_bytes) return 0.0;
  const Block block = DeviceBlock(device, beside.total());
  const Result<OwnedStream> stream = MakeStream(device, "time a run");
  if (block.get() == nullptr || !stream.ok()) return 0.0;
  if (!device.Fill(stream->get(), block.get(), beside.total(), 0).ok()) return 0.0;
  RunArgs args;
  for (int i = 0; i < kOperands; ++i) {
    if (booking.problem.Uses(static_cast<Operand>(i))) args.tile[i] = block.get() + at[i];
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
