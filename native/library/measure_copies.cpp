// Sizes are such that caches do not hide memory.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "library/measure.hpp"
#include "library/rig.hpp"
#include "library/stopwatch.hpp"
#include "memory/owners.hpp"

namespace oocdnn {
namespace {

constexpr int kRepetitions = 5;
constexpr int64_t kChannels = 64, kWidth = 112, kElement = 4;
constexpr int64_t kRows = 1120;             // of a copy: 32 MB of float32
constexpr int64_t kInsideRows = 4 * kRows;  // of one inside a device, where there is room
constexpr int64_t kFarRows = 288;  // of a plane of kNarrow columns: 16 KB, a piece of a large one
constexpr int64_t kNarrow = kWidth / 8;  // columns
constexpr int64_t kFarPitch = 65536;     // from one such plane to the next: see MemoryOrder
constexpr int64_t kFarPlanes = kWidth / kNarrow * kChannels;
// Rows with gaps in between: of one plane so many, of so many columns, so far apart.
struct NearRows {
  int64_t rows, width, pitch;
  [[nodiscard]] constexpr int64_t Count() const { return kWidth / width * kChannels * rows; }
};
constexpr NearRows kNear{20, kWidth / 2, 12544};     // too short for a copy engine at its best
constexpr NearRows kNearOfCores{288, kWidth, 1792};  // where cores copy
constexpr int64_t kLarge = 33554432;                 // bytes of host memory that all of these fit
static_assert(kRows * kWidth * kChannels * kElement <= kLarge);
static_assert(kFarPlanes * kFarPitch <= kLarge && kNear.Count() * kNear.pitch <= kLarge &&
              kNearOfCores.Count() * kNearOfCores.pitch <= kLarge);
constexpr int kBusyRuns = 16;  // of a convolution that goes on beside a copy
constexpr int kChain = 16;     // tiles, one after the other
// Of a tile of kNarrow columns, 4 MB and so many times as much: what copies cost beyond their
// bytes.
constexpr int64_t kGapRows = 146, kGapGrowth = 4;
static_assert(kGapRows * kGapGrowth * kWidth * kChannels * kElement <= kLarge);
constexpr double kLeastGap = 1e-6;  // seconds between two copies

// What rows cost on top of their bytes; not ok where that could not be measured.
struct RowTimings {
  Timing near, far;
};

// The one that takes longer, of those that were measured.
Timing Slower(const Timing& a, const Timing& b) {
  return a.ok() && (!b.ok() || a.seconds >= b.seconds) ? a : b;
}

// A rate of one engine, or of all that have none of their own.
struct Found {
  const char* name;  // see WireRates
  double Profile::* general;
  double rate;
  Evidence known;
};

class Copies {
 public:
  Copies(Device& device, int64_t limit, Profile* profile)
      : device_(device),
        limit_(limit),
        profile_(*profile),
        in_(HostBlock(device, kLarge)),
        out_(HostBlock(device, kLarge)) {}

  Status Measure() {
    if (in_.get() == nullptr || out_.get() == nullptr) {
      return Error(Code::kOutOfMemory, "no host memory to calibrate");
    }
    std::memset(in_.get(), 0, static_cast<size_t>(kLarge));
    std::memset(out_.get(), 0, static_cast<size_t>(kLarge));
    OOC_ASSIGN(fetch_, MakeStream(device_, "calibrate fetch"));
    OOC_ASSIGN(compute_, MakeStream(device_, "calibrate compute"));
    OOC_ASSIGN(drain_, MakeStream(device_, "calibrate drain"));
    OOC_ASSIGN(turn_, MakeEvent(device_));
    OOC_TRY(MeasureWires());
    return MeasureFixedCosts();
  }

 private:
  // With fewer columns, more images make up for it.
  Result<std::unique_ptr<Rig>> RigOf(int engine, int64_t rows, int64_t width) {
    ConvShape shape;
    shape.n = kWidth / width;
    shape.k = shape.c = kChannels;
    shape.in = shape.out = {1, rows, width};
    return Rig::Make(device_, engine,
                     SampleOf(shape, DType::kFloat32, Math::kFp32, Direction::kForward), limit_,
                     Timed::kCopies);
  }
  // Of the engine that the planner would ask first; or, of those whose tiles lie as the host's and
  // whose copies so take one step, where there are any.
  Result<std::unique_ptr<Rig>> FirstRig(int64_t rows, int64_t width, bool plain = false) {
    Status refusal = Error(Code::kUnsupported, "no engine's tiles lie as the host's");
    for (int engine = 0; engine < static_cast<int>(device_.engines().size()); ++engine) {
      const EngineInfo& info = device_.engines()[static_cast<size_t>(engine)];
      if (plain && (info.channels_last || IsLastResort(info))) continue;
      auto rig = RigOf(engine, rows, width);
      if (rig.ok()) return rig;
      refusal = std::move(rig).status();
    }
    return plain ? FirstRig(rows, width) : Result<std::unique_ptr<Rig>>(std::move(refusal));
  }

  // The rates of the first engine that serves go for all for which no others are measured.
  Status MeasureWires() {
    const RowTimings most = MeasureMostRows();
    bool first = true;
    for (int engine = 0; engine < static_cast<int>(device_.engines().size()); ++engine) {
      const EngineInfo& info = device_.engines()[static_cast<size_t>(engine)];
      if (!first && IsLastResort(info)) continue;
      const RowTimings rows = profile_.shared_engines ? MeasureRows(engine) : most;
      const Timing hop = MeasureHop(engine);
      auto rig = RigOf(engine, kRows, kWidth);
      if (!rig.ok()) continue;
      if (first) MeasureMove(*rig.value());
      for (const bool channels_last : {false, true}) {
        const std::vector<Found> found = MeasureWire(*rig.value(), channels_last, rows, hop);
        Note(found, first ? nullptr : &info.name, channels_last);
        first = first && found.empty();
      }
      rig.value().reset();  // one of them at a time
      MeasureInside(engine);
    }
    return {};
  }

  void MeasureMove(const Rig& rig) {
    const Timing timing = BestOf(device_, compute_.get(), [&](Span* span) {
      return device_.Move(compute_.get(), rig.MoveOfX(span));
    });
    const double rate = RateOf(rig.bytes(Operand::kX), timing);
    if (rate > 0) profile_.Set(&Profile::move_bytes_per_second, rate, timing.evidence());
  }

  // Between tiles and memory of the device's own. Where that is the host's, nothing is said to be
  // on the device.
  void MeasureInside(int engine) {
    if (device_.capabilities().shares_host_memory) return;
    auto wide = MeasureInside(engine, kInsideRows, kWidth);
    if (!wide) wide = MeasureInside(engine, kRows, kWidth);
    const auto narrow = MeasureInside(engine, kInsideRows * kNarrow / kWidth, kNarrow);
    if (!wide || !narrow) return;
    const std::string& name = device_.engines()[static_cast<size_t>(engine)].name;
    for (const bool channels_last : {false, true}) {
      const Timing& dense = wide->fetch[static_cast<size_t>(channels_last)];
      const double rate = RateOf(wide->bytes, dense);
      if (rate == 0.0) continue;
      const auto key = [&](const char* word) {
        return Profile::WireKey(name, channels_last, word);
      };
      profile_.SetWire(key("inside"), rate, dense.evidence());
      const Timing rows = Beyond(narrow->fetch[static_cast<size_t>(channels_last)],
                                 Share(dense, wide->bytes / narrow->bytes));
      const double row = kNarrow * (channels_last ? kChannels : 1) * kElement;
      if (!rows.ok()) continue;
      profile_.SetWire(key("inside_row_bytes"), rows.seconds * rate * row / narrow->bytes,
                       rows.evidence());
    }
  }

  // Of fetches inside the device: the bytes of one, and what it takes by memory order.
  struct Inside {
    double bytes = 0.0;
    std::array<Timing, 2> fetch;  // channels first, last
  };
  std::optional<Inside> MeasureInside(int engine, int64_t rows, int64_t width) {
    const auto rig = RigOf(engine, rows, width);
    if (!rig.ok()) return std::nullopt;
    Inside inside{rig.value()->bytes(Operand::kX), {}};
    for (const bool channels_last : {false, true}) {
      inside.fetch[static_cast<size_t>(channels_last)] =
          BestFetch(*rig.value(), rig.value()->OnDevice(channels_last));
    }
    return inside;
  }

  // For one engine, or for all where it is null.
  void Note(const std::vector<Found>& found, const std::string* engine, bool channels_last) {
    for (const Found& one : found) {
      if (engine == nullptr) {
        profile_.Set(one.general, one.rate, one.known);
      } else {
        profile_.SetWire(Profile::WireKey(*engine, channels_last, one.name), one.rate, one.known);
      }
    }
  }

  // Nothing where a copy fails.
  std::vector<Found> MeasureWire(Rig& rig, bool channels_last, const RowTimings& rows,
                                 const Timing& hop) {
    const Host from{in_.get(), kWidth, channels_last}, to{out_.get(), kWidth, channels_last};
    const double bytes = rig.bytes(Operand::kX);
    const Timing fetch = BestFetch(rig, from);
    const Timing drain = BestOf(device_, drain_.get(), [&](Span* span) {
      return device_.Drain(drain_.get(), rig.TransferOf(Operand::kY, to, span));
    });
    const double single = profile_.shared_engines ? 0.0 : (fetch.seconds + drain.seconds) / 2;
    const Timing both = BestOfBoth(rig, from, to, 0, single);
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
    add("row_bytes", &Profile::row_bytes, rows.near, rate);
    add("far_row_bytes", &Profile::far_row_bytes, Slower(rows.near, rows.far), rate);
    add("hop", &Profile::hop_seconds, hop, 1.0);
    return found;
  }

  // What an engine's own kernels do not disturb, others' would: of all engines the most, where they
  // do not take turns with the copies.
  RowTimings MeasureMostRows() {
    RowTimings most;
    for (int engine = 0; engine < static_cast<int>(device_.engines().size()); ++engine) {
      const EngineInfo& info = device_.engines()[static_cast<size_t>(engine)];
      if (profile_.shared_engines || (engine > 0 && IsLastResort(info))) continue;
      const RowTimings rows = MeasureRows(engine);
      most = {Slower(most.near, rows.near), Slower(most.far, rows.far)};
    }
    return most;
  }

  // Of rows with gaps between them against the same elements side by side; in both directions at
  // once, as in a pipeline, where engines do not share their hardware. Both may cost nothing.
  RowTimings MeasureRows(int engine) {
    RowTimings timings;
    const auto excess = [&](Rig& rig, const Host& dense, const Host& gaps, int runs) {
      const auto best = [&](Host host) {
        Host to = host;
        host.memory = in_.get();
        to.memory = out_.get();
        return profile_.shared_engines ? BestFetch(rig, host) : BestOfBoth(rig, host, to, runs);
      };
      return Beyond(best(gaps), best(dense));
    };
    const NearRows& near = profile_.shared_engines ? kNearOfCores : kNear;
    if (const auto rig = RigOf(engine, near.rows, near.width); rig.ok()) {
      const Host dense{nullptr, near.width, false}, gaps{nullptr, near.pitch / kElement, false};
      timings.near = Share(excess(*rig.value(), dense, gaps, 0), static_cast<double>(near.Count()));
    }
    if (const auto rig = RigOf(engine, kFarRows, kNarrow); rig.ok()) {
      const Host dense{nullptr, kNarrow, false}, gaps{nullptr, kNarrow, false, kFarPitch};
      timings.far = Share(excess(*rig.value(), dense, gaps, kBusyRuns), kFarPlanes);
    }
    return timings;
  }

  // From the end of a tiny transfer to the beginning of one that waits for it, and the little that
  // it takes; 0 where nothing overlaps.
  Timing MeasureHop(int engine) {
    if (profile_.shared_engines) return {0.0};
    const auto rig = RigOf(engine, 1, kNarrow);
    if (!rig.ok()) return {};
    const Host host{in_.get(), kNarrow, false};
    const auto pair = TimeChain([&]() -> Status {
      const Bound bound(device_);
      OOC_TRY(InTurn(drain_, fetch_));
      OOC_TRY(device_.Fetch(fetch_.get(), rig.value()->TransferOf(Operand::kX, host, nullptr)));
      OOC_TRY(InTurn(fetch_, drain_));
      return device_.Drain(drain_.get(), rig.value()->TransferOf(Operand::kY, host, nullptr));
    });
    return pair.ok() ? Share(pair.value(), 2) : Timing{};
  }

  Timing BestFetch(const Rig& rig, const Host& host) {
    return BestOf(device_, fetch_.get(), [&](Span* span) {
      return device_.Fetch(fetch_.get(), rig.TransferOf(Operand::kX, host, span));
    });
  }

  // Both directions at once: from the first beginning to the last end. `runs` convolutions go on
  // beside, where they do not run on what copies: kernels slow a GPU's copies of rows that lie far
  // apart by a third (docs/results/h200/copies.txt). `single`: seconds of one copy alone. With it,
  // what a copy does while the other is not under way counts as long as it would take beside it; as
  // that may be guessed too short, the middle one of more runs counts and not the fastest. 0: all
  // of the time counts.
  Timing BestOfBoth(Rig& rig, const Host& in, const Host& out, int runs = 0, double single = 0.0) {
    std::vector<double> seconds;
    for (int i = 0; i < (single > 0.0 ? 3 : 1) * kRepetitions; ++i) {
      Span fetched, drained;
      Status status;
      for (int run = 0; run < runs && !profile_.shared_engines && status.ok(); ++run) {
        status = rig.Run(compute_.get(), nullptr);
      }
      if (status.ok()) {
        status = device_.Fetch(fetch_.get(), rig.TransferOf(Operand::kX, in, &fetched));
      }
      if (status.ok()) {
        status = device_.Drain(drain_.get(), rig.TransferOf(Operand::kY, out, &drained));
      }
      if (!Settle(std::move(status)).ok()) return {};
      const double all = SecondsOf(
          {std::min(fetched.begin_ns, drained.begin_ns), std::max(fetched.end_ns, drained.end_ns)});
      const double together = SecondsOf(
          {std::max(fetched.begin_ns, drained.begin_ns), std::min(fetched.end_ns, drained.end_ns)});
      const bool counts = single > 0.0 && together > all / 2;
      const double left = 2.0 - (all - together) / single;  // of two copies
      seconds.push_back(counts && left > 0.0 ? together * 2.0 / left : all);
    }
    if (single > 0.0) {
      std::sort(seconds.begin(), seconds.end());
      seconds.erase(seconds.begin(), seconds.begin() + static_cast<long>(seconds.size() / 2));
    }
    return TimingOf(std::move(seconds));
  }

  // What a piece of work costs beyond its bytes and operations.
  Status MeasureFixedCosts() { return profile_.shared_engines ? MeasureTurns() : MeasureGaps(); }

  // Pieces long enough that the host is ahead of them.
  Status MeasureGaps() {
    OOC_ASSIGN(const Timing small, TimePair(kGapRows));
    OOC_ASSIGN(const Timing large, TimePair(kGapRows * kGapGrowth));
    const Timing gap = Share(Beyond(Share(small, 1.0 / kGapGrowth), large), kGapGrowth - 1);
    profile_.Set(&Profile::copy_seconds, std::max(gap.seconds, kLeastGap), gap.evidence());
    OOC_ASSIGN(const std::unique_ptr<Rig> tiny, FirstRig(1, kNarrow));
    const Host few{in_.get(), kNarrow, false};
    OOC_ASSIGN(const Timing run, TimeChain([&] { return tiny->Run(compute_.get(), nullptr); }));
    profile_.Set(&Profile::run_seconds, run.seconds, run.evidence());
    OOC_ASSIGN(const Timing step, TimeChain([&]() -> Status {
                 const Bound bound(device_);
                 OOC_TRY(device_.Fetch(fetch_.get(), tiny->TransferOf(Operand::kX, few, nullptr)));
                 OOC_TRY(tiny->Run(compute_.get(), nullptr));
                 OOC_TRY(InTurn(fetch_, drain_));
                 return device_.Drain(drain_.get(), tiny->TransferOf(Operand::kY, few, nullptr));
               }));
    profile_.Set(&Profile::step_seconds, step.seconds, step.evidence());
    return {};
  }

  // A fetch and the drain of another, of so many rows each, in both directions at once as in a
  // pipeline.
  Result<Timing> TimePair(int64_t rows) {
    OOC_ASSIGN(const std::unique_ptr<Rig> rig, FirstRig(rows, kNarrow, true));
    const Transfer fetch = rig->TransferOf(Operand::kX, {in_.get(), kNarrow, false}, nullptr);
    const Transfer drain = rig->TransferOf(Operand::kY, {out_.get(), kNarrow, false}, nullptr);
    return TimeChain([&]() -> Status {
      OOC_TRY(device_.Fetch(fetch_.get(), fetch));
      OOC_TRY(InTurn(fetch_, drain_));
      return device_.Drain(drain_.get(), drain);
    });
  }

  // Where engines share their hardware: tiny tiles, each of which is fetched when the one before
  // has been drained.
  Status MeasureTurns() {
    OOC_ASSIGN(const std::unique_ptr<Rig> rig, FirstRig(1, kNarrow));
    const Host host{in_.get(), kNarrow, false};
    OOC_ASSIGN(const Timing three, TimeChain([&]() -> Status {
                 OOC_TRY(InTurn(drain_, fetch_));
                 OOC_TRY(device_.Fetch(fetch_.get(), rig->TransferOf(Operand::kX, host, nullptr)));
                 OOC_TRY(InTurn(fetch_, compute_));
                 OOC_TRY(rig->Run(compute_.get(), nullptr));
                 OOC_TRY(InTurn(compute_, drain_));
                 return device_.Drain(drain_.get(), rig->TransferOf(Operand::kY, host, nullptr));
               }));
    const Timing one = Share(three, 3);
    for (double Profile::* const each :
         {&Profile::copy_seconds, &Profile::run_seconds, &Profile::step_seconds}) {
      profile_.Set(each, one.seconds, one.evidence());
    }
    return {};
  }

  // One of a chain of pieces, of a few chains.
  template <class Piece>
  Result<Timing> TimeChain(const Piece& piece) {
    std::vector<double> chains;
    for (int i = 0; i < kRepetitions; ++i) {
      const auto start = std::chrono::steady_clock::now();
      Status status;
      for (int tile = 0; tile < kChain && status.ok(); ++tile) status = piece();
      OOC_TRY(Settle(std::move(status)));
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      chains.push_back(seconds.count());
    }
    return Share(TimingOf(std::move(chains)), kChain);
  }

  // Waits for all that was enqueued, whatever failed, because it uses memory that then goes.
  Status Settle(Status status) {
    for (const OwnedStream* stream : {&fetch_, &compute_, &drain_}) {
      Status ended = device_.SynchronizeStream(stream->get());
      if (status.ok()) status = std::move(ended);
    }
    return status;
  }

  Status InTurn(const OwnedStream& first, const OwnedStream& then) {
    OOC_TRY(device_.Record(turn_.get(), first.get()));
    return device_.Wait(then.get(), turn_.get());
  }

  Device& device_;
  const int64_t limit_;
  Profile& profile_;
  const Block in_, out_;  // of the caller's side, kLarge bytes
  OwnedStream fetch_, compute_, drain_;
  OwnedEvent turn_;
};

}  // namespace

Status MeasureCopies(Device& device, int64_t limit, Profile* profile) {
  return Copies(device, limit, profile).Measure();
}

}  // namespace oocdnn
