#include "library/calibrate.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "base/log.hpp"
#include "memory/arena.hpp"
#include "memory/owners.hpp"

namespace oocdnn {
namespace {

constexpr int kRepetitions = 3;

// One convolution of middling size: large enough to reach the machine's rates, small enough that
// a slow engine needs a tenth of a second for it.
Problem Sample(Direction direction, DType dtype) {
  Problem problem;
  problem.direction = direction;
  problem.dtype = dtype;
  ConvShape& shape = problem.shape;
  shape.n = 1;
  shape.k = shape.c = 64;
  shape.in = {1, 56, 112};
  shape.out = {1, 56, 112};
  shape.filter = {1, 3, 3};
  shape.pad_before = shape.pad_after = {0, 1, 1};
  for (int i = 0; i < kOperands; ++i) {
    problem.stride[i] = DenseStrides(problem.DimsOf(static_cast<Operand>(i)));
  }
  return problem;
}

class DeviceBlock {
 public:
  DeviceBlock(Device& device, int64_t bytes) : device_(device), bytes_(bytes) {
    Result<void*> block = device.Allocate(bytes);
    if (block.ok()) block_ = block.value();
  }
  ~DeviceBlock() {
    if (block_ != nullptr) device_.Free(block_, bytes_);
  }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  [[nodiscard]] void* get() const { return block_; }

 private:
  Device& device_;
  int64_t bytes_;
  void* block_ = nullptr;
};

double Seconds(const Span& span) { return static_cast<double>(span.end_ns - span.begin_ns) * 1e-9; }

// The best of a few runs, or infinity where one fails.
template <class Work>
double Best(Device& device, Stream stream, const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepetitions; ++i) {
    Span span;
    Status status = work(&span);
    if (status.ok()) status = device.SynchronizeStream(stream);
    if (!status.ok()) return std::numeric_limits<double>::infinity();
    if (Seconds(span) > 0) best = std::min(best, Seconds(span));
  }
  return best;
}

struct Bench {
  Device& device;
  Stream stream;
  Profile* profile;
};

void MeasureCopies(const Bench& bench, const Problem& problem, const Executable& executable,
                   void* tile) {
  std::vector<char> host(static_cast<size_t>(problem.BytesOf(Operand::kX)), 0);
  Transfer transfer;
  transfer.view = {host.data(), problem.dtype, problem.stride[Index(Operand::kX)]};
  transfer.box = RegionOf(problem, WholeTiling(problem, false), Operand::kX, {});
  transfer.tile_end = transfer.box.extent;
  transfer.tile = tile;
  transfer.layout = &executable.layout(Operand::kX);
  const auto bytes = static_cast<double>(host.size());
  const double fetch = Best(bench.device, bench.stream, [&](Span* span) {
    Transfer timed = transfer;
    timed.tag.span = span;
    return bench.device.Fetch(bench.stream, timed);
  });
  const double drain = Best(bench.device, bench.stream, [&](Span* span) {
    Transfer timed = transfer;
    timed.tag.span = span;
    return bench.device.Drain(bench.stream, timed);
  });
  bench.profile->fetch_bytes_per_second = std::clamp(bytes / fetch, 1e8, 1e13);
  bench.profile->drain_bytes_per_second = std::clamp(bytes / drain, 1e8, 1e13);
  bench.profile->both_bytes_per_second =
      bench.profile->shared_engines
          ? std::min(bytes / fetch, bytes / drain)
          : bench.profile->fetch_bytes_per_second + bench.profile->drain_bytes_per_second;
}

void MeasureEngine(const Bench& bench, int engine, DType dtype, Direction direction) {
  const Problem problem = Sample(direction, dtype);
  const EngineInfo& info = bench.device.engines()[static_cast<size_t>(engine)];
  const Tiling tiling = WholeTiling(problem, !info.symmetric_padding);
  TileOp op;
  op.direction = direction;
  op.shape = TileShape(problem, tiling);
  op.dtype = op.out_dtype = dtype;
  Result<std::unique_ptr<Executable>> prepared = bench.device.Prepare(engine, op);
  if (!prepared.ok()) return;
  Executable& executable = *prepared.value();

  Offsets offsets(bench.device.capabilities().alignment);
  std::array<int64_t, kOperands> at{};
  for (int i = 0; i < kOperands; ++i) {
    if (problem.Uses(static_cast<Operand>(i))) {
      at[i] = offsets.Book(executable.layout(static_cast<Operand>(i)).bytes);
    }
  }
  const int64_t workspace = offsets.Book(executable.workspace_bytes());
  const DeviceBlock block(bench.device, offsets.total());
  if (block.get() == nullptr) return;
  auto* base = static_cast<char*>(block.get());
  if (!bench.device.Fill(bench.stream, base, offsets.total(), 0).ok()) return;
  RunArgs args;
  for (int i = 0; i < kOperands; ++i) args.tile[i] = base + at[i];
  args.workspace = base + workspace;
  const double seconds = Best(bench.device, bench.stream, [&](Span* span) {
    RunArgs timed = args;
    timed.tag.span = span;
    return bench.device.Run(bench.stream, executable, timed);
  });
  if (seconds < 1e6) {
    bench.profile->flops[info.name + "/" + Name(dtype) + "/" + Name(direction)] =
        2.0 * op.shape.MultiplyAdds() / seconds;
  }
  if (engine == 0 && dtype == DType::kFloat32 && direction == Direction::kForward) {
    MeasureCopies(bench, problem, executable, base + at[Index(Operand::kX)]);
  }
}

std::string CachePath(const std::string& machine) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::string folder;
  if (cache != nullptr && *cache != '\0') {
    folder = cache;
  } else if (home != nullptr && *home != '\0') {
    folder = std::string(home) + "/.cache";
    ::mkdir(folder.c_str(), 0755);
  } else {
    return "";
  }
  folder += "/oocdnn";
  ::mkdir(folder.c_str(), 0755);
  uint64_t hash = 1469598103934665603ull;  // FNV-1a
  for (const char c : machine) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return folder + Format("/profile-%016llx.txt", static_cast<unsigned long long>(hash));
}

// Written beside and renamed, so that another process never reads half a file.
void Keep(const Profile& profile, const std::string& path) {
  const std::string beside = path + Format(".%d", static_cast<int>(getpid()));
  {
    std::ofstream file(beside, std::ios::trunc);
    file << ToText(profile);
    if (!file.flush()) {
      std::remove(beside.c_str());
      return;
    }
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0) std::remove(beside.c_str());
}

std::string MachineOf(Device& device) {
  std::string machine = device.capabilities().description;
  for (const EngineInfo& engine : device.engines()) machine += " " + engine.name;
  return machine;
}

}  // namespace

Profile Measure(Device& device) {
  Profile profile;
  profile.machine = MachineOf(device);
  profile.shared_engines = device.capabilities().shared_engines;
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  if (gmtime_r(&now, &utc) != nullptr) {
    std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  }
  profile.date = date;
  Result<OwnedStream> stream = MakeStream(device, "calibrate");
  if (!stream.ok()) return profile;
  const Bench bench{device, stream.value().get(), &profile};
  for (int engine = 0; engine < static_cast<int>(device.engines().size()); ++engine) {
    if (device.engines()[static_cast<size_t>(engine)].name == "reference") continue;
    for (int direction = 0; direction < kDirections; ++direction) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
        MeasureEngine(bench, engine, dtype, static_cast<Direction>(direction));
      }
    }
  }
  profile.measured = true;
  return profile;
}

Profile ProfileOf(Device& device, const std::string& path) {
  if (path == "none") {
    Profile guess;
    guess.shared_engines = device.capabilities().shared_engines;
    return guess;
  }
  const std::string machine = MachineOf(device);
  const std::string file = path.empty() ? CachePath(machine) : path;
  std::ifstream stream(file);
  if (stream) {
    std::ostringstream text;
    text << stream.rdbuf();
    Result<Profile> kept = ParseProfile(text.str());
    if (kept.ok() && (kept->machine == machine || !path.empty())) return std::move(kept).value();
    Log(LogLevel::kWarn, "the profile %s is ignored and measured again: %s", file.c_str(),
        kept.ok() ? "it speaks of another machine" : kept.status().message().c_str());
  }
  Profile profile = Measure(device);
  if (!file.empty()) Keep(profile, file);
  return profile;
}

}  // namespace oocdnn
