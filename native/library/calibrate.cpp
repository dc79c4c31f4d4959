// Every figure is that of work which the library really does: tiles of a convolution, fetched,
// computed and drained through the device. Sizes are such that caches do not hide memory, and grow
// where a device is too fast to be timed by them.
#include "library/calibrate.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <limits>
#include <utility>

#include "base/cache.hpp"
#include "base/log.hpp"
#include "library/rig.hpp"
#include "memory/owners.hpp"

namespace oocdnn {
namespace {

struct Type {
  DType dtype;
  Math math;
};
constexpr Type kTypes[] = {{DType::kFloat32, Math::kFp32},
                           {DType::kFloat32, Math::kTf32},
                           {DType::kFloat64, Math::kFp32},
                           {DType::kFloat16, Math::kFp32},
                           {DType::kBFloat16, Math::kFp32}};
constexpr int kRepetitions = 5;
constexpr int64_t kChannels = 64, kRows = 56, kWidth = 112;
constexpr double kLongEnough = 1e-3;       // seconds that a run should take to tell its rate
constexpr int64_t kMostGrowth = 64;        // of the rows, on the way there
constexpr int64_t kCopyRows = 20 * kRows;  // of a copy: 32 MB of float32
constexpr int64_t kNarrow = kWidth / 8;    // width of a box whose rows are short
constexpr int64_t kFarPitch = 65536;       // from one plane to the next: see MemoryOrder
constexpr int64_t kFarRows = 288;          // of such a plane: 16 KB, a tile's piece of a large one
constexpr int64_t kFarPlanes = kWidth / kNarrow * kChannels;
constexpr int kBusyRuns = 4;  // of a convolution that goes on beside a copy
constexpr int kChain = 16;    // tiles, one after the other
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A 3x3 convolution of 64 channels. With `width` less than kWidth, more images make up for it.
Problem Sample(Direction direction, const Type& type, int64_t rows, int64_t width) {
  Problem problem;
  problem.direction = direction;
  problem.dtype = type.dtype;
  problem.math = type.math;
  ConvShape& shape = problem.shape;
  shape.n = kWidth / width;
  shape.k = shape.c = kChannels;
  shape.in = shape.out = {1, rows, width};
  shape.filter = {1, 3, 3};
  shape.pad_before = shape.pad_after = {0, 1, 1};
  for (int i = 0; i < kOperands; ++i) {
    problem.stride[i] = DenseStrides(problem.DimsOf(static_cast<Operand>(i)));
  }
  return problem;
}

double Seconds(const Span& span) { return static_cast<double>(span.end_ns - span.begin_ns) * 1e-9; }

// The best of a few runs of what `work` enqueues, or infinity where one fails.
template <class Work>
double Best(Device& device, Stream stream, const Work& work) {
  double best = kInfinity;
  for (int i = 0; i < kRepetitions; ++i) {
    Span span;
    Status status = work(&span);
    if (status.ok()) status = device.SynchronizeStream(stream);
    if (!status.ok()) return kInfinity;
    if (Seconds(span) > 0) best = std::min(best, Seconds(span));
  }
  return best;
}

// A rate that was measured, or what was there where it could not be.
void Set(double* rate, double amount, double seconds) {
  constexpr double kLeast = 1e6, kMost = 1e16;
  if (seconds > 0 && seconds < kInfinity) *rate = std::clamp(amount / seconds, kLeast, kMost);
}

class Calibration {
 public:
  Calibration(Device& device, Profile* profile) : device_(device), profile_(*profile) {}

  Status Measure() {
    OOC_ASSIGN(fetch_, MakeStream(device_, "calibrate fetch"));
    OOC_ASSIGN(compute_, MakeStream(device_, "calibrate compute"));
    OOC_ASSIGN(drain_, MakeStream(device_, "calibrate drain"));
    OOC_ASSIGN(turn_, MakeEvent(device_));
    OOC_TRY(MeasureCopies());
    OOC_TRY(MeasureFixedCosts());
    for (int engine = 0; engine < static_cast<int>(device_.engines().size()); ++engine) {
      if (IsLastResort(engine)) continue;
      for (int direction = 0; direction < kDirections; ++direction) {
        for (const Type& type : kTypes) {
          MeasureEngine(engine, type, static_cast<Direction>(direction));
        }
      }
    }
    return {};
  }

 private:
  // What no time is spent on: nobody waits for the reference engine if another serves.
  [[nodiscard]] bool IsLastResort(int engine) const {
    return device_.engines()[static_cast<size_t>(engine)].name == "reference";
  }

  Result<std::unique_ptr<Rig>> RigOf(int engine, int64_t rows, int64_t width) {
    return Rig::Make(device_, engine, Sample(Direction::kForward, kTypes[0], rows, width));
  }
  // Of the engine that the planner would ask first.
  Result<std::unique_ptr<Rig>> FirstRig(int64_t rows, int64_t width) {
    Status refusal;
    for (int engine = 0; engine < static_cast<int>(device_.engines().size()); ++engine) {
      auto rig = RigOf(engine, rows, width);
      if (rig.ok()) return rig;
      refusal = std::move(rig).status();
    }
    return refusal;
  }

  // The rates of the first engine that serves go for all for which no others are measured.
  Status MeasureCopies() {
    const Problem whole = Sample(Direction::kForward, kTypes[0], kCopyRows, kWidth);
    const int64_t size = std::max(whole.BytesOf(Operand::kX), kFarPlanes * kFarPitch);
    const Block in = HostBlock(device_, size), out = HostBlock(device_, size);
    if (in.get() == nullptr || out.get() == nullptr) {
      return Error(Code::kOutOfMemory, "no host memory to calibrate");
    }
    std::memset(in.get(), 0, static_cast<size_t>(size));
    std::memset(out.get(), 0, static_cast<size_t>(size));
    bool first = true;
    for (int engine = 0; engine < static_cast<int>(device_.engines().size()); ++engine) {
      if (!first && IsLastResort(engine)) continue;
      const auto rig = RigOf(engine, kCopyRows, kWidth);
      const auto narrow = RigOf(engine, kCopyRows * kNarrow / kWidth, kNarrow);
      const auto far = RigOf(engine, kFarRows, kNarrow);
      if (!rig.ok() || !narrow.ok() || !far.ok()) continue;
      if (first) MeasureMove(*rig.value());
      const double far_seconds = FarRowSeconds(*far.value(), in.get());
      for (const bool channels_last : {false, true}) {
        const Host from{in.get(), kWidth, channels_last}, to{out.get(), kWidth, channels_last};
        WireRates rates = MeasureWire(*rig.value(), *narrow.value(), from, to);
        if (rates.fetch == 0 || rates.drain == 0 || rates.both == 0) continue;
        rates.far_row_bytes = std::max(rates.row_bytes, far_seconds * rates.fetch);
        Note(rates, first ? nullptr : &device_.engines()[static_cast<size_t>(engine)].name,
             channels_last);
        first = false;
      }
    }
    return {};
  }

  void MeasureMove(const Rig& rig) {
    Set(&profile_.move_bytes_per_second, rig.bytes(Operand::kX),
        Best(device_, compute_.get(), [&](Span* span) {
          return device_.Move(compute_.get(), rig.MoveOf(Operand::kX, span));
        }));
  }

  // For one engine, or for all where it is null.
  void Note(const WireRates& rates, const std::string* engine, bool channels_last) {
    if (engine == nullptr) {
      profile_.fetch_bytes_per_second = rates.fetch;
      profile_.drain_bytes_per_second = rates.drain;
      profile_.both_bytes_per_second = rates.both;
      profile_.row_bytes = rates.row_bytes;
      profile_.far_row_bytes = rates.far_row_bytes;
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
  }

  // Rates of 0 where a copy fails. `narrow` has an eighth of the elements, in rows an eighth as
  // long, out of tensors as large.
  WireRates MeasureWire(const Rig& rig, const Rig& narrow, const Host& from, const Host& to) {
    WireRates rates{};
    const double bytes = rig.bytes(Operand::kX);
    Set(&rates.fetch, bytes, BestFetch(rig, from));
    Set(&rates.drain, bytes, Best(device_, drain_.get(), [&](Span* span) {
      return device_.Drain(drain_.get(), rig.TransferOf(Operand::kY, to, span));
    }));
    Set(&rates.both, 2 * bytes, BestOfBoth(rig, from, to));
    const double slow = BestFetch(narrow, from);
    const double narrow_bytes = narrow.bytes(Operand::kX);
    const int64_t row = kNarrow * (from.channels_last ? kChannels : 1) * SizeOf(DType::kFloat32);
    if (slow < kInfinity) {
      const double excess = slow * rates.fetch - narrow_bytes;
      rates.row_bytes = std::max(excess, 0.0) * static_cast<double>(row) / narrow_bytes;
    }
    return rates;
  }

  // What a plane costs on top of its bytes when it lies far from the one before, while kernels run:
  // their launches make a GPU forget where pages of host memory lie.
  double FarRowSeconds(Rig& rig, void* memory) {
    const auto seconds = [&](int64_t pitch) {
      return Best(device_, fetch_.get(), [&](Span* span) {
        for (int i = 0; i < kBusyRuns && !profile_.shared_engines; ++i) {
          OOC_TRY(rig.Run(compute_.get(), nullptr));
        }
        OOC_TRY(device_.Fetch(fetch_.get(),
                              rig.TransferOf(Operand::kX, {memory, kNarrow, false, pitch}, span)));
        return device_.SynchronizeStream(compute_.get());
      });
    };
    const double dense = seconds(0), spread = seconds(kFarPitch);
    if (dense == kInfinity || spread == kInfinity) return 0.0;
    return std::max(spread - dense, 0.0) / static_cast<double>(kFarPlanes);
  }

  double BestFetch(const Rig& rig, const Host& host) {
    return Best(device_, fetch_.get(), [&](Span* span) {
      return device_.Fetch(fetch_.get(), rig.TransferOf(Operand::kX, host, span));
    });
  }

  // Both directions at once: from the first beginning to the last end.
  double BestOfBoth(const Rig& rig, const Host& in, const Host& out) {
    double best = kInfinity;
    for (int i = 0; i < kRepetitions; ++i) {
      Span fetched, drained;
      Status status = device_.Fetch(fetch_.get(), rig.TransferOf(Operand::kX, in, &fetched));
      if (status.ok()) {
        status = device_.Drain(drain_.get(), rig.TransferOf(Operand::kY, out, &drained));
      }
      for (const OwnedStream* stream : {&fetch_, &drain_}) {
        Status ended = device_.SynchronizeStream(stream->get());
        if (status.ok()) status = std::move(ended);
      }
      if (!status.ok()) return kInfinity;
      best = std::min(best, Seconds({std::min(fetched.begin_ns, drained.begin_ns),
                                     std::max(fetched.end_ns, drained.end_ns)}));
    }
    return best;
  }

  // Tiny tiles: all that they take is what a piece of work costs beyond its bytes and operations.
  // Where engines share their hardware, each is fetched when the one before has been drained; where
  // not, pieces of one engine follow each other, as what passes between engines overlaps.
  Status MeasureFixedCosts() {
    OOC_ASSIGN(const std::unique_ptr<Rig> rig, FirstRig(1, kNarrow));
    const auto bytes = static_cast<int64_t>(rig->bytes(Operand::kX));
    const Block block = HostBlock(device_, bytes);
    if (block.get() == nullptr) return Error(Code::kOutOfMemory, "no host memory to calibrate");
    std::memset(block.get(), 0, static_cast<size_t>(bytes));
    const Host host{block.get(), kNarrow, false};
    const auto fetch = [&] {
      return device_.Fetch(fetch_.get(), rig->TransferOf(Operand::kX, host, nullptr));
    };
    const auto run = [&] { return rig->Run(compute_.get(), nullptr); };
    if (!profile_.shared_engines) {
      OOC_ASSIGN(profile_.copy_seconds, ChainSeconds(fetch_, fetch));
      OOC_ASSIGN(profile_.run_seconds, ChainSeconds(compute_, run));
      return {};
    }
    OOC_ASSIGN(const double three, ChainSeconds(drain_, [&]() -> Status {
                 OOC_TRY(InTurn(drain_, fetch_));
                 OOC_TRY(fetch());
                 OOC_TRY(InTurn(fetch_, compute_));
                 OOC_TRY(run());
                 OOC_TRY(InTurn(compute_, drain_));
                 return device_.Drain(drain_.get(), rig->TransferOf(Operand::kY, host, nullptr));
               }));
    profile_.copy_seconds = profile_.run_seconds = three / 3;
    return {};
  }

  // Seconds of one of a chain of pieces, the best of a few chains; all end on `last`.
  template <class Piece>
  Result<double> ChainSeconds(const OwnedStream& last, const Piece& piece) {
    double best = kInfinity;
    for (int i = 0; i < kRepetitions; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (int tile = 0; tile < kChain; ++tile) OOC_TRY(piece());
      OOC_TRY(device_.SynchronizeStream(last.get()));
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      best = std::min(best, seconds.count());
    }
    return best / kChain;
  }

  Status InTurn(const OwnedStream& first, const OwnedStream& then) {
    OOC_TRY(device_.Record(turn_.get(), first.get()));
    return device_.Wait(then.get(), turn_.get());
  }

  void MeasureEngine(int engine, const Type& type, Direction direction) {
    const EngineInfo& info = device_.engines()[static_cast<size_t>(engine)];
    for (int64_t growth = 1; growth <= kMostGrowth; growth *= 4) {
      auto rig = Rig::Make(device_, engine, Sample(direction, type, kRows * growth, kWidth));
      if (!rig.ok()) return;
      const double seconds = Best(device_, compute_.get(), [&](Span* span) {
        return rig.value()->Run(compute_.get(), span);
      });
      if (seconds == kInfinity) return;
      Set(&profile_.flops[Profile::FlopsKey(info.name, type.dtype, type.math, direction)],
          rig.value()->operations(), seconds);
      if (seconds >= kLongEnough) return;
    }
  }

  Device& device_;
  Profile& profile_;
  OwnedStream fetch_, compute_, drain_;
  OwnedEvent turn_;
};

std::string Today() {
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  if (gmtime_r(&now, &utc) == nullptr) return "";
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return date;
}

std::string MachineOf(Device& device) {
  std::string machine = device.capabilities().description;
  for (const EngineInfo& engine : device.engines()) machine += " " + engine.name;
  return machine;
}

std::string CachePath(const std::string& machine) {
  const std::string folder = CacheFolder();
  if (folder.empty()) return "";
  return folder + Format("/profile-%016llx.txt", static_cast<unsigned long long>(Hash(machine)));
}

Profile Guess(Device& device) {
  Profile guess;
  guess.machine = MachineOf(device);
  guess.shared_engines = device.capabilities().shared_engines;
  return guess;
}

}  // namespace

Profile Measure(Device& device) {
  Profile profile = Guess(device);
  profile.date = Today();
  const Status status = Calibration(device, &profile).Measure();
  if (status.ok()) {
    profile.measured = true;
  } else {
    Log(LogLevel::kWarn,
        "plans rest on guesses about this machine, as it could not be measured: %s",
        status.message().c_str());
  }
  return profile;
}

Profile ProfileOf(Device& device, const std::string& path) {
  if (path == "none") return Guess(device);
  const std::string machine = MachineOf(device);
  const std::string file = path.empty() ? CachePath(machine) : path;
  if (const auto text = ReadKept(file)) {
    Result<Profile> kept = ParseProfile(*text);
    if (kept.ok() && (kept->machine == machine || !path.empty())) return std::move(kept).value();
    Log(LogLevel::kWarn, "the profile %s is ignored and measured again: %s", file.c_str(),
        kept.ok() ? "it speaks of another machine" : kept.status().message().c_str());
  }
  Profile profile = Measure(device);
  if (profile.measured && !file.empty()) Keep(file, ToText(profile));
  return profile;
}

}  // namespace oocdnn
