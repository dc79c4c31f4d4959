#include "planner/time_run.hpp"

#include <array>
#include <utility>
#include <vector>

#include "memory/arena.hpp"
#include "memory/block.hpp"
#include "memory/owners.hpp"
#include "planner/random_fill.hpp"
#include "planner/stopwatch.hpp"

namespace oocdnn {
namespace {

// Seconds, in which a long run has been seen often enough; a first run that takes more than kOnce
// is not repeated, and one that is known to take more than kNever is not launched to be timed.
constexpr double kEnough = 0.02, kOnce = 0.2, kNever = 0.5;

// The fastest of a few runs; of one where that takes long.
template <class Work>
Timing FastestRun(Device& device, Stream stream, const Work& run) {
  std::vector<double> seconds = RunsOf(device, stream, run, kInfinity, 1);
  if (seconds.empty() || seconds.front() > kOnce) return TimingOf(std::move(seconds));
  const int more = seconds.front() > kEnough ? 1 : kRepetitions - 1;
  const std::vector<double> others = RunsOf(device, stream, run, kEnough, more);
  if (others.empty()) return {};
  seconds.insert(seconds.end(), others.begin(), others.end());
  return TimingOf(std::move(seconds));
}

// One engine's run of a tile, whose operands are in that memory at these offsets.
RunArgs ArgsOf(const Booking& booking, const PreparedPart& prepared, char* memory,
               const std::array<int64_t, kOperands>& at) {
  RunArgs args;
  for (const Operand place : {Operand::kX, Operand::kW, Operand::kY, Operand::kBias}) {
    const Operand operand = prepared.part.Of(place);
    if (booking.problem.Uses(operand)) args.tile[Index(place)] = memory + at[Index(operand)];
  }
  if (prepared.own_dy) args.tile[Index(Operand::kY)] = memory + booking.own_dy;
  args.workspace = memory + booking.workspace;
  return args;
}

// 0 where it is to be timed.
double Known(const PreparedPart& prepared) {
  const double known = prepared.executable->run_seconds();
  return known > kNever ? known : 0.0;
}

}  // namespace

double UnrunSeconds(const Booking& booking) {
  double seconds = 0.0;
  for (const PreparedPart& prepared : booking.usual.parts) seconds += Known(prepared);
  return seconds;
}

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
  if (!FillRandomly(device, stream->get(), block.get(), beside.total(), booking.problem.dtype)
           .ok()) {
    return 0.0;
  }
  double seconds = 0.0;
  for (const PreparedPart& prepared : booking.usual.parts) {
    const RunArgs args = ArgsOf(booking, prepared, block.get(), at);
    const auto run = [&](Span* span) {
      RunArgs timed = args;
      timed.tag.span = span;
      return device.Run(stream->get(), *prepared.executable, timed);
    };
    if (const double known = Known(prepared); known > 0.0) {
      seconds += known;
      continue;
    }
    const Timing timing = FastestRun(device, stream->get(), run);
    if (!timing.ok()) return 0.0;
    seconds += timing.seconds;
  }
  return seconds;
}

}  // namespace oocdnn
