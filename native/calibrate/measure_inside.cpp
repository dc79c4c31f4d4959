#include "calibrate/measure_inside.hpp"

#include <array>
#include <optional>

namespace oocdnn {
namespace {

constexpr int64_t kRows = 1120, kMoreRows = 4 * kRows;  // the latter where there is room

// Fetches of all of x: their bytes, and what one takes by memory order.
struct Inside {
  double bytes = 0.0;
  std::array<Timing, 2> fetch;  // channels first, last
};

std::optional<Inside> Fetches(const CopyBench& bench, int engine, int64_t rows, int64_t width) {
  const auto rig = bench.RigOf(engine, rows, width);
  if (!rig.ok()) return std::nullopt;
  Inside inside{rig.value()->bytes(Operand::kX), {}};
  for (const bool channels_last : {false, true}) {
    inside.fetch[static_cast<size_t>(channels_last)] =
        bench.BestFetch(*rig.value(), rig.value()->OnDevice(channels_last));
  }
  return inside;
}

}  // namespace

void MeasureInside(const CopyBench& bench, int engine, Profile* profile) {
  if (bench.device().capabilities().shares_host_memory) return;
  auto wide = Fetches(bench, engine, kMoreRows, kCopyWidth);
  if (!wide) wide = Fetches(bench, engine, kRows, kCopyWidth);
  const auto narrow = Fetches(bench, engine, kMoreRows * kCopyNarrow / kCopyWidth, kCopyNarrow);
  if (!wide || !narrow) return;
  const std::string& name = bench.device().engines()[static_cast<size_t>(engine)].name;
  for (const bool channels_last : {false, true}) {
    const Timing& dense = wide->fetch[static_cast<size_t>(channels_last)];
    const double rate = RateOf(wide->bytes, dense);
    if (rate == 0.0) continue;
    const auto key = [&](const char* word) { return Profile::WireKey(name, channels_last, word); };
    profile->SetWire(key("inside"), rate, dense.evidence());
    const Timing rows = Beyond(narrow->fetch[static_cast<size_t>(channels_last)],
                               Share(dense, wide->bytes / narrow->bytes));
    const double row = kCopyNarrow * (channels_last ? kCopyChannels : 1) * kCopyElement;
    if (!rows.ok()) continue;
    profile->SetWire(key("inside_row_bytes"), rows.seconds * rate * row / narrow->bytes,
                     rows.evidence());
  }
}

}  // namespace oocdnn
