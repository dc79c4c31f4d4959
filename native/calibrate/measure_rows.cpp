// In both directions at once, as in a pipeline, where engines do not share their hardware.
#include "calibrate/measure_rows.hpp"

#include "calibrate/measure.hpp"

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
// Of a plane 47 KB, as tiles of large images have them, and from one to the next: see MemoryOrder.
// A GPU loses time at each 64 KB that a row has a part of only (docs/results/h200/copies.txt): with
// this pitch rows begin at all quarters of them, and no two share one.
constexpr int64_t kFarRows = 432, kFarWidth = kCopyWidth / 4, kFarPitch = 147456;
constexpr int64_t kFarPlanes = kCopyWidth / kFarWidth * kCopyChannels;
static_assert(kFarPlanes * kFarPitch <= kCopyBytes && kNear.Count() * kNear.pitch <= kCopyBytes &&
              kNearOfCores.Count() * kNearOfCores.pitch <= kCopyBytes);
// Convolutions that go on beside a copy: the more a GPU's kernels use its memory, the longer copies
// of rows that lie far apart take, by a third where tensor cores compute; fp32 without them hardly
// matters.
constexpr int kBusyRuns = 16;
constexpr Math kBusyMath = Math::kTf32;

// The caller's tensor: from one row to the next so many columns, and see Host.
struct RowLayout {
  int64_t width, plane_pitch = 0;
};

CopyBench::Each TimesOf(const CopyBench& bench, Rig& rig, const RowLayout& rows, int runs) {
  const Host from = bench.In(rows.width, false, rows.plane_pitch);
  const Host to = bench.Out(rows.width, false, rows.plane_pitch);
  if (bench.shared_engines()) return {bench.BestFetch(rig, from), bench.BestDrain(rig, to)};
  return bench.MiddleOfEach(rig, from, to, runs);
}

// What each of `count` rows takes longer in one layout than in the other; it may be nothing.
CopyBench::Each Excess(const CopyBench& bench, Rig& rig, RowLayout gaps, RowLayout dense, int runs,
                       int64_t count) {
  const CopyBench::Each slow = TimesOf(bench, rig, gaps, runs);
  const CopyBench::Each fast = TimesOf(bench, rig, dense, runs);
  const auto parts = static_cast<double>(count);
  return {Share(Beyond(slow.fetch, fast.fetch), parts),
          Share(Beyond(slow.drain, fast.drain), parts)};
}

// The one that takes longer, of those that were measured.
Timing Slower(const Timing& a, const Timing& b) {
  return a.ok() && (!b.ok() || a.seconds >= b.seconds) ? a : b;
}

RowTimings Slower(const RowTimings& a, const RowTimings& b) {
  return {Slower(a.near, b.near), Slower(a.far, b.far)};
}

}  // namespace

RowsBothWays MeasureRows(const CopyBench& bench, int engine) {
  CopyBench::Each near, far;
  const NearRows& rows = bench.shared_engines() ? kNearOfCores : kNear;
  if (const auto rig = bench.RigOf(engine, rows.rows, rows.width); rig.ok()) {
    near = Excess(bench, *rig.value(), {rows.pitch / kCopyElement}, {rows.width}, 0, rows.Count());
  }
  if (const auto rig = bench.RigOf(engine, kFarRows, kFarWidth, kBusyMath); rig.ok()) {
    far = Excess(bench, *rig.value(), {kFarWidth, kFarPitch}, {kFarWidth}, kBusyRuns, kFarPlanes);
  }
  return {{near.fetch, Slower(near.fetch, far.fetch)}, {near.drain, Slower(near.drain, far.drain)}};
}

RowsBothWays MeasureMostRows(const CopyBench& bench) {
  RowsBothWays most;
  const std::vector<EngineInfo>& engines = bench.device().engines();
  for (size_t engine = 0; engine < engines.size() && !bench.shared_engines(); ++engine) {
    if (engine > 0 && IsLastResort(engines[engine])) continue;
    const RowsBothWays rows = MeasureRows(bench, static_cast<int>(engine));
    most = {Slower(most.fetch, rows.fetch), Slower(most.drain, rows.drain)};
  }
  return most;
}

}  // namespace oocdnn
