#include "calibrate/measure_pieces.hpp"

#include <algorithm>

namespace oocdnn {
namespace {

// Of a tile of few columns, 4 MB and so many times as much.
constexpr int64_t kRows = 146, kGrowth = 4;
static_assert(kRows * kGrowth * kCopyWidth * kCopyChannels * kCopyElement <= kCopyBytes);
constexpr double kLeastGap = 1e-6;  // seconds between two copies

// A fetch and the drain of another, of so many rows each, in both directions at once as in a
// pipeline; long enough that the host is ahead of them.
Result<Timing> TimePair(const CopyBench& bench, int64_t rows) {
  OOC_ASSIGN(const std::unique_ptr<Rig> rig, bench.FirstRig(rows, kCopyNarrow, true));
  const Transfer fetch = rig->TransferOf(Operand::kX, bench.In(kCopyNarrow), nullptr);
  const Transfer drain = rig->TransferOf(Operand::kY, bench.Out(kCopyNarrow), nullptr);
  return bench.TimeChain([&]() -> Status {
    OOC_TRY(bench.device().Fetch(bench.fetch().get(), fetch));
    OOC_TRY(bench.InTurn(bench.fetch(), bench.drain()));
    return bench.device().Drain(bench.drain().get(), drain);
  });
}

Status MeasureApart(const CopyBench& bench, Profile* profile) {
  Device& device = bench.device();
  OOC_ASSIGN(const Timing small, TimePair(bench, kRows));
  OOC_ASSIGN(const Timing large, TimePair(bench, kRows * kGrowth));
  const Timing gap = Share(Beyond(Share(small, 1.0 / kGrowth), large), kGrowth - 1);
  profile->Set(&Profile::copy_seconds, std::max(gap.seconds, kLeastGap), gap.evidence());
  OOC_ASSIGN(const std::unique_ptr<Rig> tiny, bench.FirstRig(1, kCopyNarrow));
  const Host host = bench.In(kCopyNarrow);
  OOC_ASSIGN(const Timing run,
             bench.TimeChain([&] { return tiny->Run(bench.compute().get(), nullptr); }));
  profile->Set(&Profile::run_seconds, run.seconds, run.evidence());
  OOC_ASSIGN(const Timing step, bench.TimeChain([&]() -> Status {
    const ScopedBinding binding(device);
    OOC_TRY(device.Fetch(bench.fetch().get(), tiny->TransferOf(Operand::kX, host, nullptr)));
    OOC_TRY(tiny->Run(bench.compute().get(), nullptr));
    OOC_TRY(bench.InTurn(bench.fetch(), bench.drain()));
    return device.Drain(bench.drain().get(), tiny->TransferOf(Operand::kY, host, nullptr));
  }));
  profile->Set(&Profile::step_seconds, step.seconds, step.evidence());
  return {};
}

// Where engines share their hardware: tiny tiles, each of which is fetched when the one before has
// been drained.
Status MeasureInTurn(const CopyBench& bench, Profile* profile) {
  Device& device = bench.device();
  OOC_ASSIGN(const std::unique_ptr<Rig> rig, bench.FirstRig(1, kCopyNarrow));
  const Host host = bench.In(kCopyNarrow);
  OOC_ASSIGN(const Timing three, bench.TimeChain([&]() -> Status {
    OOC_TRY(bench.InTurn(bench.drain(), bench.fetch()));
    OOC_TRY(device.Fetch(bench.fetch().get(), rig->TransferOf(Operand::kX, host, nullptr)));
    OOC_TRY(bench.InTurn(bench.fetch(), bench.compute()));
    OOC_TRY(rig->Run(bench.compute().get(), nullptr));
    OOC_TRY(bench.InTurn(bench.compute(), bench.drain()));
    return device.Drain(bench.drain().get(), rig->TransferOf(Operand::kY, host, nullptr));
  }));
  const Timing one = Share(three, 3);
  for (double Profile::* const each :
       {&Profile::copy_seconds, &Profile::run_seconds, &Profile::step_seconds}) {
    profile->Set(each, one.seconds, one.evidence());
  }
  return {};
}

}  // namespace

Status MeasurePieces(const CopyBench& bench, Profile* profile) {
  return bench.shared_engines() ? MeasureInTurn(bench, profile) : MeasureApart(bench, profile);
}

Timing MeasureHop(const CopyBench& bench, int engine) {
  if (bench.shared_engines()) return {0.0};
  const auto rig = bench.RigOf(engine, 1, kCopyNarrow);
  if (!rig.ok()) return {};
  const Host host = bench.In(kCopyNarrow);
  const auto pair = bench.TimeChain([&]() -> Status {
    const ScopedBinding binding(bench.device());
    OOC_TRY(bench.InTurn(bench.drain(), bench.fetch()));
    OOC_TRY(bench.device().Fetch(bench.fetch().get(),
                                 rig.value()->TransferOf(Operand::kX, host, nullptr)));
    OOC_TRY(bench.InTurn(bench.fetch(), bench.drain()));
    return bench.device().Drain(bench.drain().get(),
                                rig.value()->TransferOf(Operand::kY, host, nullptr));
  });
  return pair.ok() ? Share(pair.value(), 2) : Timing{};
}

}  // namespace oocdnn
