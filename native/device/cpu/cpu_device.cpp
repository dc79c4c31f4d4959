// The CPU device: puts streams, cores, wires, memory and engines together.
//
// Every piece of work begins on the thread of its stream, which asks for the cores. Copies of a
// throttled link and small pieces stay on that thread.
#include "device/cpu/cpu_device.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/host.hpp"
#include "device/cpu/copy.hpp"
#include "device/cpu/cores.hpp"
#include "device/cpu/engine.hpp"
#include "device/cpu/finish.hpp"
#include "device/cpu/fork.hpp"
#include "device/cpu/memory.hpp"
#include "device/cpu/norm.hpp"
#include "device/cpu/pool_backward.hpp"
#include "device/cpu/pool_forward.hpp"
#include "device/cpu/stream.hpp"
#include "device/cpu/wire.hpp"

namespace oocdnn {
namespace cpu {
namespace {

constexpr int64_t kSmallFill = 65536;  // bytes that are not worth the cores

using Engines = std::vector<std::unique_ptr<CpuEngine>>;
using TileWork = std::function<Status(Parallel&)>;

// Removes the owner of `object` from `owners`, which destroys it.
template <class T>
void Drop(std::vector<std::unique_ptr<T>>* owners, const T* object) {
  std::erase_if(*owners, [&](const std::unique_ptr<T>& owner) { return owner.get() == object; });
}

class CpuDevice final : public Device {
 public:
  CpuDevice(const CpuOptions& options, int threads, int64_t memory, Engines engines);
  ~CpuDevice() override;

  const Capabilities& capabilities() const override { return capabilities_; }
  Result<int64_t> FreeBytes() override;
  Result<void*> Allocate(int64_t bytes) override { return account_.Allocate(bytes); }
  void Free(void* buffer, int64_t bytes) override { account_.Free(buffer, bytes); }
  Result<void*> AllocateHost(int64_t bytes) override;
  void FreeHost(void* memory, int64_t bytes) override;

  Status PinHost(void*, int64_t) override { return {}; }
  void UnpinHost(void*, int64_t) override {}
  Result<Location> Locate(const void*, int64_t) override { return Location{Tier::kPageable}; }
  Result<Stream> CreateStream(const char* name) override;
  void DestroyStream(Stream stream) override;
  Result<Stream> AdoptStream(void*) override {
    return Error(Code::kUnsupported, "the CPU device has no streams of its callers");
  }
  Result<Event> CreateEvent(EventUse) override;
  void DestroyEvent(Event event) override;
  Status Record(Event event, Stream stream) override;
  Status Wait(Stream stream, Event event) override;
  Status Synchronize(Event event) override;
  Status SynchronizeStream(Stream stream) override;
  double BusySeconds(Stream stream) override { return stream->BusySeconds(); }

  Status Fetch(Stream stream, const Transfer& transfer) override;
  Status Drain(Stream stream, const Transfer& transfer) override;
  Status Move(Stream stream, const TileMove& move) override;
  Status Fill(Stream stream, void* buffer, int64_t bytes, int byte) override;

  const std::vector<EngineInfo>& engines() const override { return infos_; }
  Result<std::unique_ptr<Executable>> Prepare(int engine, const TileOp& op) override;
  Status Run(Stream stream, Executable& executable, const RunArgs& args) override;
  Status Finish(Stream stream, const FinishArgs& args) override;
  Status PoolBackward(Stream stream, const PoolBackwardArgs& args) override;
  Status Norm(Stream stream, const NormArgs& args) override;

 private:
  // Rebuilds what has threads where this process is a fork of the one that had them.
  void HealAfterFork();
  Status EnqueueCopy(Stream stream, Transfer transfer, Wire* wire,
                     Status (*copy)(const Transfer&, Parallel&));
  Status OnCores(Stream stream, const Tag& tag, TileWork work);
  Status RunOnCores(StreamTag* stream, const Tag& tag, const TileWork& work);
  Status RunOnWire(StreamTag* stream, const Transfer& transfer, Wire* wire, const TileWork& work);
  void Jitter(StreamTag* stream) const;

  const CpuOptions options_;
  const int threads_;
  Capabilities capabilities_;
  Account account_;
  Wire fetch_wire_, drain_wire_;
  Cores cores_;
  Engines engines_;
  std::vector<EngineInfo> infos_;
  std::vector<std::unique_ptr<EventTag>> events_;
  std::vector<std::unique_ptr<StreamTag>> streams_;
  unsigned created_streams_ = 0;
  int64_t generation_ = ForkGeneration();
};

CpuDevice::CpuDevice(const CpuOptions& options, int threads, int64_t memory, Engines engines)
    : options_(options),
      threads_(threads),
      account_(memory),
      fetch_wire_(options.link_gb_per_s),
      drain_wire_(options.link_gb_per_s),
      cores_(threads),
      engines_(std::move(engines)) {
  capabilities_.name = "cpu";
  // Not what memory is free, because profiles and plans are found again by this text.
  capabilities_.description = Format("%s, %d threads", ProcessorName().c_str(), threads);
  if (options.link_gb_per_s > 0) {
    capabilities_.description += Format(", behind a wire of %g GB/s", options.link_gb_per_s);
  }
  capabilities_.alignment = kAlignment;
  capabilities_.reads_host = true;
  capabilities_.shares_host_memory = true;
  capabilities_.shared_engines = !fetch_wire_.limited();
  for (const auto& engine : engines_) infos_.push_back(engine->info());
}

// Streams end before what their work uses.
CpuDevice::~CpuDevice() {
  HealAfterFork();
  streams_.clear();
}

void CpuDevice::HealAfterFork() {
  if (generation_ == ForkGeneration()) return;
  generation_ = ForkGeneration();
  for (auto& stream : streams_) stream->AfterFork();
  for (auto& event : events_) event->AfterFork();
  cores_.AfterFork();
  for (auto& engine : engines_) engine->AfterFork();
}

Result<int64_t> CpuDevice::FreeBytes() {
  const int64_t left = std::min(account_.allowed() - account_.held(), AvailableMemory());
  return std::max<int64_t>(left, 0);
}

Result<void*> CpuDevice::AllocateHost(int64_t bytes) {
  void* memory = TakePages(std::max<int64_t>(bytes, 1));
  if (memory != nullptr) return memory;
  return Error(Code::kOutOfMemory, "the system has no %lld bytes of host memory",
               static_cast<long long>(bytes));
}

void CpuDevice::FreeHost(void* memory, int64_t bytes) {
  if (memory != nullptr) ReturnPages(memory, std::max<int64_t>(bytes, 1));
}

Result<Stream> CpuDevice::CreateStream(const char* name) {
  HealAfterFork();
  const unsigned seed = options_.jitter_seed + 0x9e3779b9u * ++created_streams_;
  streams_.push_back(std::make_unique<StreamTag>(name, seed));
  return streams_.back().get();
}

void CpuDevice::DestroyStream(Stream stream) {
  HealAfterFork();
  Drop(&streams_, stream);
}

Result<Event> CpuDevice::CreateEvent(EventUse) {
  events_.push_back(std::make_unique<EventTag>());
  return events_.back().get();
}

void CpuDevice::DestroyEvent(Event event) {
  HealAfterFork();
  Drop(&events_, event);
}

Status CpuDevice::Record(Event event, Stream stream) {
  HealAfterFork();
  auto moment = std::make_shared<Moment>();
  OOC_TRY(stream->Always([moment] { moment->Fire(); }));
  event->latest = std::move(moment);
  return {};
}

Status CpuDevice::Wait(Stream stream, Event event) {
  HealAfterFork();
  if (event->latest == nullptr) return {};
  return stream->Always([moment = event->latest] { moment->Await(); });
}

Status CpuDevice::Synchronize(Event event) {
  HealAfterFork();
  if (event->latest != nullptr) event->latest->Await();
  return {};
}

Status CpuDevice::SynchronizeStream(Stream stream) {
  HealAfterFork();
  return stream->Synchronize();
}

// Delays of 0 to 2 ms, most of them short: the fourth power of a uniform number.
void CpuDevice::Jitter(StreamTag* stream) const {
  if (options_.jitter_seed == 0) return;
  const double uniform = std::uniform_real_distribution<double>()(stream->random());
  SleepUntil(Now() + static_cast<int64_t>(2e6 * uniform * uniform * uniform * uniform));
}

Status CpuDevice::RunOnCores(StreamTag* stream, const Tag& tag, const TileWork& work) {
  Status status;
  Span span;
  OOC_TRY(cores_.Run([&](Parallel& team) {
    span.begin_ns = Now();
    status = work(team);
    span.end_ns = Now();
  }));
  stream->AddBusy(span.end_ns - span.begin_ns);
  if (tag.span != nullptr) *tag.span = span;
  return status;
}

// A throttled copy is done by the stream's own thread, as a copy engine would: it must neither
// wait for the cores nor keep them, so that copies and computing overlap.
Status CpuDevice::RunOnWire(StreamTag* stream, const Transfer& transfer, Wire* wire,
                            const TileWork& work) {
  Span span;
  span.begin_ns = Now();
  const int64_t over = wire->Book(BytesOf(transfer));
  Status status;
  if (transfer.layout->native != nullptr) {
    OOC_TRY(cores_.Run([&](Parallel& team) { status = work(team); }));
  } else {
    Alone alone;
    status = work(alone);
  }
  SleepUntil(over);
  span.end_ns = Now();
  stream->AddBusy(span.end_ns - span.begin_ns);
  if (transfer.tag.span != nullptr) *transfer.tag.span = span;
  return status;
}

Status CpuDevice::OnCores(Stream stream, const Tag& tag, TileWork work) {
  HealAfterFork();
  return stream->Work([this, stream, tag, work = std::move(work)] {
    Jitter(stream);
    return RunOnCores(stream, tag, work);
  });
}

// The layout is copied: it belongs to the caller, who may let go of it once the call returns.
Status CpuDevice::EnqueueCopy(Stream stream, Transfer transfer, Wire* wire,
                              Status (*copy)(const Transfer&, Parallel&)) {
  HealAfterFork();
  const TileLayout layout = *transfer.layout;
  return stream->Work([this, stream, transfer, layout, wire, copy]() mutable {
    Jitter(stream);
    transfer.layout = &layout;
    const TileWork work = [&](Parallel& parallel) { return copy(transfer, parallel); };
    return wire->limited() ? RunOnWire(stream, transfer, wire, work)
                           : RunOnCores(stream, transfer.tag, work);
  });
}

Status CpuDevice::Fetch(Stream stream, const Transfer& transfer) {
  return EnqueueCopy(stream, transfer, &fetch_wire_, FetchTile);
}

Status CpuDevice::Drain(Stream stream, const Transfer& transfer) {
  return EnqueueCopy(stream, transfer, &drain_wire_, DrainTile);
}

Status CpuDevice::Move(Stream stream, const TileMove& move) {
  return OnCores(stream, move.tag, [move, layout = *move.layout](Parallel& parallel) {
    TileMove here = move;
    here.layout = &layout;
    return MoveTile(here, parallel);
  });
}

Status CpuDevice::Fill(Stream stream, void* buffer, int64_t bytes, int byte) {
  if (bytes <= kSmallFill) {
    HealAfterFork();
    return stream->Work([this, stream, buffer, bytes, byte] {
      Jitter(stream);
      std::memset(buffer, byte, static_cast<size_t>(std::max<int64_t>(bytes, 0)));
      return Status();
    });
  }
  return OnCores(stream, Tag{}, [buffer, bytes, byte](Parallel& parallel) {
    parallel.For(bytes, int64_t{1} << 18, [&](int64_t begin, int64_t end) {
      std::memset(static_cast<char*>(buffer) + begin, byte, static_cast<size_t>(end - begin));
    });
    return Status();
  });
}

Result<std::unique_ptr<Executable>> CpuDevice::Prepare(int engine, const TileOp& op) {
  HealAfterFork();
  if (engine < 0 || engine >= static_cast<int>(engines_.size())) {
    return Error(Code::kInternal, "the CPU device has %zu engines, and was asked for number %d",
                 engines_.size(), engine);
  }
  CpuEngine& chosen = *engines_[static_cast<size_t>(engine)];
  auto prepared = chosen.Prepare(op, threads_);
  if (!prepared.ok()) return std::move(prepared).status().With(chosen.info().name);
  return std::unique_ptr<Executable>(std::move(prepared).value());
}

Status CpuDevice::Run(Stream stream, Executable& executable, const RunArgs& args) {
  auto* const prepared = static_cast<CpuExecutable*>(&executable);
  return OnCores(stream, args.tag,
                 [prepared, args](Parallel& parallel) { return prepared->Run(args, parallel); });
}

Status CpuDevice::Finish(Stream stream, const FinishArgs& args) {
  const auto copy = [](const TileLayout* layout) {
    return layout != nullptr ? *layout : TileLayout{};
  };
  return OnCores(stream, args.tag,
                 [args, layout = *args.layout, z = copy(args.pooled.z.layout),
                  saved = copy(args.pooled.saved.layout)](Parallel& parallel) {
                   FinishArgs here = args;
                   here.layout = &layout;
                   here.pooled.z.layout = &z;
                   here.pooled.saved.layout = &saved;
                   return FinishAndPool(here, parallel);
                 });
}

Status CpuDevice::PoolBackward(Stream stream, const PoolBackwardArgs& args) {
  const bool saved = args.saved.data != nullptr;
  return OnCores(stream, args.tag,
                 [args, saved, layout = *args.layout, z = *args.z.layout,
                  bits = saved ? *args.saved.layout : TileLayout{}](Parallel& parallel) {
                   PoolBackwardArgs here = args;
                   here.layout = &layout;
                   here.z.layout = &z;
                   here.saved.layout = &bits;
                   return PoolBackwardTile(here, parallel);
                 });
}

Status CpuDevice::Norm(Stream stream, const NormArgs& args) {
  return OnCores(stream, args.tag, [args, layout = *args.layout](Parallel& parallel) {
    NormArgs here = args;
    here.layout = &layout;
    return NormTile(here, parallel);
  });
}

// The engines that `only` admits ("": all), fastest first. `why_not` says why oneDNN is missing.
Engines MakeEngines(const std::string& only, std::string* why_not) {
  Engines engines;
  if (only.empty() || only == "onednn") {
    if (auto engine = LoadOneDnnEngine(why_not)) engines.push_back(std::move(engine));
  }
  if (only.empty() || only == "direct") engines.push_back(MakeDirectEngine());
  if (only.empty() || only == "reference") engines.push_back(MakeReferenceEngine());
  return engines;
}

}  // namespace
}  // namespace cpu

Result<std::unique_ptr<Device>> MakeCpuDevice(const CpuOptions& options) {
  std::string why_not;
  cpu::Engines engines = cpu::MakeEngines(options.engine, &why_not);
  if (engines.empty()) {
    return Error(Code::kUnsupported,
                 "the CPU device has no engine '%s'%s%s; use onednn, direct "
                 "or reference",
                 options.engine.c_str(), why_not.empty() ? "" : ": ", why_not.c_str());
  }
  const int threads = options.threads > 0 ? options.threads : HostThreads();
  const int64_t memory = options.memory_bytes > 0 ? options.memory_bytes : AvailableMemory() / 2;
  return std::unique_ptr<Device>(
      std::make_unique<cpu::CpuDevice>(options, threads, memory, std::move(engines)));
}

}  // namespace oocdnn
