// The wires of each engine, whose tiles lie as it wants them.
#include <string>
#include <utility>
#include <vector>

#include "calibrate/copy_bench.hpp"
#include "calibrate/measure.hpp"
#include "calibrate/measure_inside.hpp"
#include "calibrate/measure_pieces.hpp"
#include "calibrate/measure_rows.hpp"

namespace oocdnn {
namespace {

// A rate of one engine, or of all that have none of their own.
struct Found {
  const char* name;  // see WireRates
  double Profile::* general;
  double rate;
  Evidence known;
};

// Nothing where a copy fails.
std::vector<Found> MeasureWire(const CopyBench& bench, Rig& rig, bool channels_last,
                               const RowsBothWays& rows, const Timing& hop) {
  const Host from = bench.In(kCopyWidth, channels_last), to = bench.Out(kCopyWidth, channels_last);
  const double bytes = rig.bytes(Operand::kX);
  Timing fetch = bench.BestFetch(rig, from), drain = bench.BestDrain(rig, to);
  Timing both;
  if (bench.shared_engines()) {
    both = bench.BestOfBoth(rig, from, to);
  } else {
    both = bench.MiddleOfBoth(rig, from, to, (fetch.seconds + drain.seconds) / 2);
    // A few copies last a few milliseconds, and so may whatever else made all of them slow.
    fetch = Better(fetch, bench.BestFetch(rig, from));
    drain = Better(drain, bench.BestDrain(rig, to));
  }
  const double rate = RateOf(bytes, fetch), back = RateOf(bytes, drain);
  const double together = RateOf(2 * bytes, both);
  if (rate == 0 || back == 0 || together == 0) return {};
  std::vector<Found> found{{"fetch", &Profile::fetch_bytes_per_second, rate, fetch.evidence()},
                           {"drain", &Profile::drain_bytes_per_second, back, drain.evidence()},
                           {"both", &Profile::both_bytes_per_second, together, both.evidence()}};
  const auto add = [&](const char* name, double Profile::* general, const Timing& timing,
                       double factor) {
    if (timing.ok()) found.push_back({name, general, timing.seconds * factor, timing.evidence()});
  };
  add("fetch_row_bytes", &Profile::fetch_row_bytes, rows.fetch.near, rate);
  add("far_fetch_row_bytes", &Profile::far_fetch_row_bytes, rows.fetch.far, rate);
  add("drain_row_bytes", &Profile::drain_row_bytes, rows.drain.near, back);
  add("far_drain_row_bytes", &Profile::far_drain_row_bytes, rows.drain.far, back);
  add("hop", &Profile::hop_seconds, hop, 1.0);
  return found;
}

// For one engine, or for all where it is null.
void Note(const std::vector<Found>& found, const std::string* engine, bool channels_last,
          Profile* profile) {
  for (const Found& one : found) {
    if (engine == nullptr) {
      profile->Set(one.general, one.rate, one.known);
    } else {
      profile->SetWire(Profile::WireKey(*engine, channels_last, one.name), one.rate, one.known);
    }
  }
}

void MeasureMove(const CopyBench& bench, const Rig& rig, Profile* profile) {
  const Timing timing = BestOf(bench.device(), bench.compute().get(), [&](Span* span) {
    return bench.device().Move(bench.compute().get(), rig.MoveOfX(span));
  });
  const double rate = RateOf(rig.bytes(Operand::kX), timing);
  if (rate > 0) profile->Set(&Profile::move_bytes_per_second, rate, timing.evidence());
}

// The rates of the first engine that serves go for all for which no others are measured. Fails
// where there is none: the reason is that of the last.
Status MeasureWires(const CopyBench& bench, Profile* profile) {
  const RowsBothWays most = MeasureMostRows(bench);
  bool first = true;
  Status failure = Error(Code::kDeviceError, "no copy could be timed");
  for (int engine = 0; engine < static_cast<int>(bench.device().engines().size()); ++engine) {
    const EngineInfo& info = bench.device().engines()[static_cast<size_t>(engine)];
    if (!first && IsLastResort(info)) continue;
    const RowsBothWays rows = bench.shared_engines() ? MeasureRows(bench, engine) : most;
    const Timing hop = MeasureHop(bench, engine);
    auto rig = bench.RigOf(engine, kCopyRows, kCopyWidth);
    if (!rig.ok()) {
      failure = std::move(rig).status();
      continue;
    }
    if (first) MeasureMove(bench, *rig.value(), profile);
    for (const bool channels_last : {false, true}) {
      const std::vector<Found> found = MeasureWire(bench, *rig.value(), channels_last, rows, hop);
      Note(found, first ? nullptr : &info.name, channels_last, profile);
      first = first && found.empty();
    }
    rig.value().reset();  // one of them at a time
    MeasureInside(bench, engine, profile);
  }
  return first ? std::move(failure).With("the wires") : Status();
}

}  // namespace

Status MeasureCopies(Device& device, int64_t limit, Profile* profile) {
  OOC_ASSIGN(const std::unique_ptr<CopyBench> bench,
             CopyBench::Make(device, limit, profile->shared_engines));
  OOC_TRY(MeasureWires(*bench, profile));
  OOC_TRY(MeasurePieces(*bench, profile));
  return MeasurePasses(device, limit, profile);
}

}  // namespace oocdnn
