// In both directions at once, as in a pipeline, where engines do not share their hardware.
#include "library/measure_rows.hpp"

#include <algorithm>
#include <utility>

#include "library/measure.hpp"

namespace oocdnn {
namespace {

// Rows of one plane so many, of so many columns, so far apart.
struct NearRows {
  int64_t rows, width, pitch;
  [[nodiscard]] constexpr int64_t Count() const {
    return kCopyWidth / width * kCopyChannels * rows;
  }
};
constexpr NearRows kNear{20, kCopyWidth / 2, 12544};     // too short for a copy engine at its best
constexpr NearRows kNearOfCores{288, kCopyWidth, 1792};  // where cores copy
// Of a plane of few columns: 16 KB, a piece of a large one; and from one to the next: see
// MemoryOrder.
constexpr int64_t kFarRows = 288, kFarPitch = 65536;
constexpr int64_t kFarPlanes = kCopyWidth / kCopyNarrow * kCopyChannels;
static_assert(kFarPlanes * kFarPitch <= kCopyBytes && kNear.Count() * kNear.pitch <= kCopyBytes &&
              kNearOfCores.Count() * kNearOfCores.pitch <= kCopyBytes);
// Convolutions that go on beside a copy: kernels slow a GPU's copies of rows that lie far apart by
// a third (docs/results/h200/copies.txt).
constexpr int kBusyRuns = 16;

// The caller's tensor: from one row to the next so many columns, and see Host.
struct RowLayout {
  int64_t width, plane_pitch = 0;
};

// What the rows of one take longer than the same elements side by side; it may be nothing.
Timing Excess(const CopyBench& bench, Rig& rig, RowLayout gaps, RowLayout dense, int runs) {
  const auto best = [&](const RowLayout& rows) {
    const Host from = bench.In(rows.width, false, rows.plane_pitch);
    const Host to = bench.Out(rows.width, false, rows.plane_pitch);
    return bench.shared_engines() ? bench.BestFetch(rig, from)
                                  : bench.BestOfBoth(rig, from, to, runs);
  };
  return Beyond(best(gaps), best(dense));
}

}  // namespace

Timing Slower(const Timing& a, const Timing& b) {
  return a.ok() && (!b.ok() || a.seconds >= b.seconds) ? a : b;
}

RowTimings MeasureRows(const CopyBench& bench, int engine) {
  RowTimings timings;
  const NearRows& near = bench.shared_engines() ? kNearOfCores : kNear;
  if (const auto rig = bench.RigOf(engine, near.rows, near.width); rig.ok()) {
    const Timing all = Excess(bench, *rig.value(), {near.pitch / kCopyElement}, {near.width}, 0);
    timings.near = Share(all, static_cast<double>(near.Count()));
  }
  if (const auto rig = bench.RigOf(engine, kFarRows, kCopyNarrow); rig.ok()) {
    const Timing all =
        Excess(bench, *rig.value(), {kCopyNarrow, kFarPitch}, {kCopyNarrow}, kBusyRuns);
    timings.far = Share(all, kFarPlanes);
  }
  return timings;
}

RowTimings MeasureMostRows(const CopyBench& bench) {
  RowTimings most;
  const std::vector<EngineInfo>& engines = bench.device().engines();
  for (size_t engine = 0; engine < engines.size() && !bench.shared_engines(); ++engine) {
    if (engine > 0 && IsLastResort(engines[engine])) continue;
    const RowTimings rows = MeasureRows(bench, static_cast<int>(engine));
    most = {Slower(most.near, rows.near), Slower(most.far, rows.far)};
  }
  return most;
}

}  // namespace oocdnn
