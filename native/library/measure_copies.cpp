// Sizes are such that caches do not hide memory.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

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

// What rows cost on top of their bytes, in seconds.
struct RowSeconds {
  double near = 0.0, far = 0.0;
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
                     false);
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
    const RowSeconds most = MeasureMostRows();
    bool first = true;
    for (int engine = 0; engine < static_cast<int>(device_.engines().size()); ++engine) {
      const EngineInfo& info = device_.engines()[static_cast<size_t>(engine)];
      if (!first && IsLastResort(info)) continue;
      const auto rig = RigOf(engine, kRows, kWidth);
      if (!rig.ok()) continue;
      if (first) MeasureMove(*rig.value());
      const RowSeconds rows = profile_.shared_engines ? MeasureRows(engine) : most;
      const double hop = MeasureHop(engine);
      for (const bool channels_last : {false, true}) {
        const Host from{in_.get(), kWidth, channels_last}, to{out_.get(), kWidth, channels_last};
        WireRates rates = MeasureWire(*rig.value(), from, to);
        if (rates.fetch == 0 || rates.drain == 0 || rates.both == 0) continue;
        rates.row_bytes = rows.near * rates.fetch;
        rates.far_row_bytes = std::max(rows.near, rows.far) * rates.fetch;
        rates.hop = hop;
        Note(rates, first ? nullptr : &info.name, channels_last);
        first = false;
      }
      MeasureInside(engine);
    }
    return {};
  }

  void MeasureMove(const Rig& rig) {
    SetRate(&profile_.move_bytes_per_second, rig.bytes(Operand::kX),
            BestSeconds(device_, compute_.get(), [&](Span* span) {
              return device_.Move(compute_.get(), rig.MoveOfX(span));
            }));
  }

  // Between tiles and memory of the device's own. Where that is the host's, nothing is said to be
  // on the device.
  void MeasureInside(int engine) {
    if (device_.capabilities().shares_host_memory) return;
    const auto narrow = RigOf(engine, kInsideRows * kNarrow / kWidth, kNarrow);
    auto rig = RigOf(engine, kInsideRows, kWidth);
    if (!rig.ok()) rig = RigOf(engine, kRows, kWidth);
    if (!rig.ok() || !narrow.ok()) return;
    const std::string& name = device_.engines()[static_cast<size_t>(engine)].name;
    for (const bool channels_last : {false, true}) {
      const Host host = rig.value()->OnDevice(channels_last);
      double rate = 0.0;
      SetRate(&rate, rig.value()->bytes(Operand::kX), BestFetch(*rig.value(), host));
      if (rate == 0.0) continue;
      const double bytes = narrow.value()->bytes(Operand::kX);
      const double excess = std::max(BestFetch(*narrow.value(), host) * rate - bytes, 0.0);
      const double row = kNarrow * (channels_last ? kChannels : 1) * kElement;
      profile_.wires[Profile::WireKey(name, channels_last, "inside")] = rate;
      if (excess == kInfinity) continue;
      profile_.wires[Profile::WireKey(name, channels_last, "inside_row_bytes")] =
          excess * row / bytes;
    }
  }

  // For one engine, or for all where it is null.
  void Note(const WireRates& rates, const std::string* engine, bool channels_last) {
    if (engine == nullptr) {
      profile_.fetch_bytes_per_second = rates.fetch;
      profile_.drain_bytes_per_second = rates.drain;
      profile_.both_bytes_per_second = rates.both;
      profile_.row_bytes = rates.row_bytes;
      profile_.far_row_bytes = rates.far_row_bytes;
      profile_.hop_seconds = rates.hop;
      return;
    }
    const auto set = [&](const char* rate, double value) {
      profile_.wires[Profile::WireKey(*engine, channels_last, rate)] = value;
    };
    set("fetch", rates.fetch);
    set("drain", rates.drain);
    set("both", rates.both);
    set("row_bytes", rates.row_bytes);
    set("far_row_bytes", rates.far_row_bytes);
    if (rates.hop > 0) set("hop", rates.hop);
  }

  // Rates of 0 where a copy fails.
  WireRates MeasureWire(Rig& rig, const Host& from, const Host& to) {
    WireRates rates{};
    const double bytes = rig.bytes(Operand::kX);
    SetRate(&rates.fetch, bytes, BestFetch(rig, from));
    SetRate(&rates.drain, bytes, BestSeconds(device_, drain_.get(), [&](Span* span) {
      return device_.Drain(drain_.get(), rig.TransferOf(Operand::kY, to, span));
    }));
    SetRate(&rates.both, 2 * bytes, BestOfBoth(rig, from, to));
    return rates;
  }

  // What an engine's own kernels do not disturb, others' would: of all engines the most, where they
  // do not take turns with the copies.
  RowSeconds MeasureMostRows() {
    RowSeconds most;
    for (int engine = 0; engine < static_cast<int>(device_.engines().size()); ++engine) {
      const EngineInfo& info = device_.engines()[static_cast<size_t>(engine)];
      if (profile_.shared_engines || (engine > 0 && IsLastResort(info))) continue;
      const RowSeconds rows = MeasureRows(engine);
      most = {std::max(most.near, rows.near), std::max(most.far, rows.far)};
    }
    return most;
  }

  // Of rows with gaps between them against the same elements side by side; in both directions at
  // once, as in a pipeline, where engines do not share their hardware. Both may cost nothing.
  RowSeconds MeasureRows(int engine) {
    RowSeconds seconds;
    const auto excess = [&](Rig& rig, const Host& dense, const Host& gaps, int runs) {
      const auto best = [&](Host host) {
        Host to = host;
        host.memory = in_.get();
        to.memory = out_.get();
        return profile_.shared_engines ? BestFetch(rig, host) : BestOfBoth(rig, host, to, runs);
      };
      const double slow = best(gaps), quick = best(dense);
      return slow < kInfinity ? std::max(slow - quick, 0.0) : 0.0;
    };
    const NearRows& near = profile_.shared_engines ? kNearOfCores : kNear;
    if (const auto rig = RigOf(engine, near.rows, near.width); rig.ok()) {
      const Host dense{nullptr, near.width, false}, gaps{nullptr, near.pitch / kElement, false};
      seconds.near = excess(*rig.value(), dense, gaps, 0) / static_cast<double>(near.Count());
    }
    if (const auto rig = RigOf(engine, kFarRows, kNarrow); rig.ok()) {
      const Host dense{nullptr, kNarrow, false}, gaps{nullptr, kNarrow, false, kFarPitch};
      seconds.far = excess(*rig.value(), dense, gaps, kBusyRuns) / kFarPlanes;
    }
    return seconds;
  }

  // From the end of a tiny transfer to the beginning of one that waits for it, and the little that
  // it takes; 0 where nothing overlaps.
  double MeasureHop(int engine) {
    if (profile_.shared_engines) return 0.0;
    const auto rig = RigOf(engine, 1, kNarrow);
    if (!rig.ok()) return 0.0;
    const Host host{in_.get(), kNarrow, false};
    const auto seconds = ChainSeconds([&]() -> Status {
      const Bound bound(device_);
      OOC_TRY(InTurn(drain_, fetch_));
      OOC_TRY(device_.Fetch(fetch_.get(), rig.value()->TransferOf(Operand::kX, host, nullptr)));
      OOC_TRY(InTurn(fetch_, drain_));
      return device_.Drain(drain_.get(), rig.value()->TransferOf(Operand::kY, host, nullptr));
    });
    return seconds.ok() ? seconds.value() / 2 : 0.0;
  }

  double BestFetch(const Rig& rig, const Host& host) {
    return BestSeconds(device_, fetch_.get(), [&](Span* span) {
      return device_.Fetch(fetch_.get(), rig.TransferOf(Operand::kX, host, span));
    });
  }

  // Both directions at once: from the first beginning to the last end. `runs` convolutions go on
  // beside, where they do not run on what copies: kernels slow a GPU's copies of rows that lie far
  // apart by a third (docs/results/h200/copies.txt).
  double BestOfBoth(Rig& rig, const Host& in, const Host& out, int runs = 0) {
    double best = kInfinity;
    for (int i = 0; i < kRepetitions; ++i) {
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
      if (!Settle(std::move(status)).ok()) return kInfinity;
      best = std::min(best, SecondsOf({std::min(fetched.begin_ns, drained.begin_ns),
                                       std::max(fetched.end_ns, drained.end_ns)}));
    }
    return best;
  }

  // What a piece of work costs beyond its bytes and operations.
  Status MeasureFixedCosts() { return profile_.shared_engines ? MeasureTurns() : MeasureGaps(); }

  // Pieces long enough that the host is ahead of them.
  Status MeasureGaps() {
    OOC_ASSIGN(const std::unique_ptr<Rig> tiny, FirstRig(1, kNarrow));
    const Host few{in_.get(), kNarrow, false};
    OOC_ASSIGN(const double small, PairSeconds(kGapRows));
    OOC_ASSIGN(const double large, PairSeconds(kGapRows * kGapGrowth));
    profile_.copy_seconds = std::max((kGapGrowth * small - large) / (kGapGrowth - 1), kLeastGap);
    OOC_ASSIGN(profile_.run_seconds,
               ChainSeconds([&] { return tiny->Run(compute_.get(), nullptr); }));
    OOC_ASSIGN(profile_.step_seconds, ChainSeconds([&]() -> Status {
                 const Bound bound(device_);
                 OOC_TRY(device_.Fetch(fetch_.get(), tiny->TransferOf(Operand::kX, few, nullptr)));
                 OOC_TRY(tiny->Run(compute_.get(), nullptr));
                 OOC_TRY(InTurn(fetch_, drain_));
                 return device_.Drain(drain_.get(), tiny->TransferOf(Operand::kY, few, nullptr));
               }));
    return {};
  }

  // A fetch and the drain of another, of so many rows each, in both directions at once as in a
  // pipeline.
  Result<double> PairSeconds(int64_t rows) {
    OOC_ASSIGN(const std::unique_ptr<Rig> rig, FirstRig(rows, kNarrow, true));
    const Transfer fetch = rig->TransferOf(Operand::kX, {in_.get(), kNarrow, false}, nullptr);
    const Transfer drain = rig->TransferOf(Operand::kY, {out_.get(), kNarrow, false}, nullptr);
    return ChainSeconds([&]() -> Status {
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
    OOC_ASSIGN(const double three, ChainSeconds([&]() -> Status {
                 OOC_TRY(InTurn(drain_, fetch_));
                 OOC_TRY(device_.Fetch(fetch_.get(), rig->TransferOf(Operand::kX, host, nullptr)));
                 OOC_TRY(InTurn(fetch_, compute_));
                 OOC_TRY(rig->Run(compute_.get(), nullptr));
                 OOC_TRY(InTurn(compute_, drain_));
                 return device_.Drain(drain_.get(), rig->TransferOf(Operand::kY, host, nullptr));
               }));
    profile_.copy_seconds = profile_.run_seconds = profile_.step_seconds = three / 3;
    return {};
  }

  // Seconds of one of a chain of pieces, the best of a few chains.
  template <class Piece>
  Result<double> ChainSeconds(const Piece& piece) {
    double best = kInfinity;
    for (int i = 0; i < kRepetitions; ++i) {
      const auto start = std::chrono::steady_clock::now();
      Status status;
      for (int tile = 0; tile < kChain && status.ok(); ++tile) status = piece();
      OOC_TRY(Settle(std::move(status)));
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      best = std::min(best, seconds.count());
    }
    return best / kChain;
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
