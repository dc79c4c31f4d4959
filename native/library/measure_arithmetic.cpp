// Convolutions whose sums are long enough for an engine's full rate at their number of channels.
#include "library/measure.hpp"
#include "library/rig.hpp"
#include "library/stopwatch.hpp"
#include "memory/owners.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kRows = 56, kWidth = 112;
constexpr double kLongEnough = 1e-3;  // seconds that a run should take to tell its rate
constexpr int64_t kMostGrowth = 64, kMostGrowthOfWide = 4;  // of the rows, on the way there

ConvShape ShapeOf(int64_t channels, int64_t rows) {
  ConvShape shape;
  shape.k = shape.c = channels;
  shape.in = shape.out = {1, rows, kWidth};
  return shape;
}

// Operations per second; 0 where the engine refuses. A device that overlaps is fast, so it begins
// with as many rows as another may have to grow to.
double RateOf(Device& device, Stream stream, int engine, const Problem& asked, int64_t channels) {
  const bool overlaps = !device.capabilities().shared_engines;
  const int64_t most = channels > Profile::kChannels ? kMostGrowthOfWide : kMostGrowth;
  double rate = 0.0;
  for (int64_t growth = overlaps ? most : 1; growth <= most; growth *= 4) {
    auto rig = Rig::Make(
        device, engine,
        SampleOf(ShapeOf(channels, kRows * growth), asked.dtype, asked.math, asked.direction));
    if (!rig.ok()) return rate;
    const double seconds =
        BestSeconds(device, stream, [&](Span* span) { return rig.value()->Run(stream, span); });
    SetRate(&rate, rig.value()->operations(), seconds);
    if (seconds >= kLongEnough) return rate;
  }
  return rate;
}

void Add(Profile* profile, const std::string& key, double rate) {
  if (rate > 0) profile->flops[key] = rate;
}

}  // namespace

void MeasureArithmetic(Device& device, const Problem& problem, Profile* profile) {
  const Result<OwnedStream> stream = MakeStream(device, "compute");
  if (!stream.ok()) return;
  for (int engine = 0; engine < static_cast<int>(device.engines().size()); ++engine) {
    const EngineInfo& info = device.engines()[static_cast<size_t>(engine)];
    const std::string key =
        Profile::FlopsKey(info.name, problem.dtype, problem.math, problem.direction);
    if (IsLastResort(info) || profile->flops.contains(key)) continue;
    const double rate = RateOf(device, stream->get(), engine, problem, Profile::kChannels);
    Add(profile, key, rate);
    const bool wide = rate > Profile::kFast && problem.direction != Direction::kBackwardBias;
    if (wide) {
      Add(profile, key + Profile::kWide,
          RateOf(device, stream->get(), engine, problem, Profile::kWideChannels));
    }
  }
}

}  // namespace oocdnn
