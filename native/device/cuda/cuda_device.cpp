// The CUDA device: puts the GPU, streams, copies and engines together. Every call makes the GPU's
// context current for its own length and leaves the caller's as it was.
//
// Errors of work already enqueued are the driver's own: they break the context, and every later
// call tells so.
#include "device/cuda/cuda_device.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/checked.hpp"
#include "base/log.hpp"
#include "device/cuda/copier.hpp"
#include "device/cuda/engine.hpp"
#include "device/cuda/finish.hpp"
#include "device/cuda/held.hpp"
#include "device/cuda/host_memory.hpp"
#include "device/cuda/norm.hpp"
#include "device/cuda/peers.hpp"
#include "device/cuda/pointer_facts.hpp"
#include "device/cuda/pool_backward.hpp"
#include "device/cuda/pool_forward.hpp"
#include "device/cuda/stream.hpp"

namespace oocdnn {
namespace cuda {
namespace {

// Parts that are each long enough for a copy engine's full speed.
static_assert(kBounceBytes / Lane::kParts == int64_t{16} << 20);

int64_t WeightOf(const Transfer& transfer) {
  Dims extent;
  for (size_t d = 0; d < extent.size(); ++d) {
    extent[d] = transfer.tile_end[d] - transfer.tile_begin[d];
  }
  return Mul(Product(extent), SizeOf(transfer.view.dtype));
}

// Streams and events travel under the names of the Device's own types.
CudaStream& Of(Stream stream) { return *reinterpret_cast<CudaStream*>(stream); }
CUevent Of(Event event) { return reinterpret_cast<CUevent>(event); }

class CudaDevice final : public Device {
 public:
  // `missing`: why an engine that could be there is not; "" where all are.
  CudaDevice(std::unique_ptr<Gpu> gpu, CudaEngines engines, const std::string& missing);
  ~CudaDevice() override;
  // Copies with host memory go over the links of these GPUs too.
  Status Borrow(const BorrowedGpus& borrowed);

  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  void Bind() override { bound_.emplace(gpu_->context()); }
  void Unbind() override { bound_.reset(); }
  Result<int64_t> FreeBytes() override;
  Result<void*> Allocate(int64_t bytes) override;
  void Free(void* buffer, int64_t bytes) override;
  Result<void*> AllocateHost(int64_t bytes) override;
  void FreeHost(void* memory, int64_t bytes) override;
  Status PinHost(void* memory, int64_t bytes) override;
  void UnpinHost(void* memory, int64_t bytes) override;
  Result<Location> Locate(const void* memory, int64_t bytes) override;

  Result<Stream> CreateStream(const char* name) override;
  Result<Stream> AdoptStream(void* native) override;
  void DestroyStream(Stream stream) override;
  Result<Event> CreateEvent(EventUse use) override;
  void DestroyEvent(Event event) override;
  Status Record(Event event, Stream stream) override;
  Status Wait(Stream stream, Event event) override;
  Status Synchronize(Event event) override;
  Status SynchronizeStream(Stream stream) override;
  double BusySeconds(Stream stream) override;

  Status Fetch(Stream stream, const Transfer& transfer) override;
  Status Drain(Stream stream, const Transfer& transfer) override;
  Status Move(Stream stream, const TileMove& move) override;
  Status Fill(Stream stream, void* buffer, int64_t bytes, int byte) override;

  [[nodiscard]] const std::vector<EngineInfo>& engines() const override { return infos_; }
  Result<std::unique_ptr<Executable>> Prepare(int engine, const TileOp& op) override;
  Status Run(Stream stream, Executable& executable, const RunArgs& args) override;
  Status Finish(Stream stream, const FinishArgs& args) override;
  Status PoolBackward(Stream stream, const PoolBackwardArgs& args) override;
  Status Norm(Stream stream, const NormArgs& args) override;

 private:
  // Calls work() with the context current.
  template <class Work>
  Status Enter(const Work& work) const {
    const Current current(gpu_->context());
    OOC_TRY(current.status());
    return work();
  }
  // Puts a piece of work on the stream: enqueue(handle).
  template <class Enqueue>
  Status Put(Stream stream, const Tag& tag, const Sort& sort, int64_t weight,
             const Enqueue& enqueue) const {
    return Enter([&]() -> Status {
      if (sort.kind != Kind::kCopy) OOC_TRY(Of(stream).Settle());
      return Of(stream).Timed(tag, sort, weight, enqueue);
    });
  }
  Status Launch(CUstream stream, const DensePlan& plan) const {
    return gpu_->Launch(plan.kernel, plan.shape, stream, plan.args);
  }
  [[nodiscard]] const Driver& driver() const { return gpu_->driver(); }

  const std::unique_ptr<Gpu> gpu_;
  Peers peers_;
  BorrowedLinks links_;
  const Copier copier_;
  CudaEngines engines_;
  std::vector<EngineInfo> infos_;
  Capabilities capabilities_;
  std::optional<Current> bound_;  // of the one thread that enqueues
};

CudaDevice::CudaDevice(std::unique_ptr<Gpu> gpu, CudaEngines engines, const std::string& missing)
    : gpu_(std::move(gpu)), peers_(gpu_->context()), copier_(*gpu_), engines_(std::move(engines)) {
  capabilities_.name = Format("cuda:%d", gpu_->ordinal());
  capabilities_.description =
      Format("%s, compute capability %d.%d, %.1f GiB", gpu_->name().c_str(), gpu_->compute_major(),
             gpu_->compute_minor(), static_cast<double>(gpu_->total_bytes()) / 0x1p30);
  capabilities_.driver = driver().Text();
  capabilities_.alignment = 256;
  capabilities_.blocked_tiles = false;
  capabilities_.bounce_bytes = kBounceBytes;
  capabilities_.tries_engines = true;
  capabilities_.components.push_back({"kernels", true, gpu_->kernels(), ""});
  if (!missing.empty()) capabilities_.components.push_back({"engines", false, missing, ""});
  for (const auto& engine : engines_) infos_.push_back(engine->info());
}

// Engines may hold handles of libraries, which go in the context that they belong to.
CudaDevice::~CudaDevice() {
  const Current current(gpu_->context());
  engines_.clear();
}

// The description names the GPUs: the wires are other ones, and have a profile of their own.
Status CudaDevice::Borrow(const BorrowedGpus& borrowed) {
  links_.piece_bytes = borrowed.piece_bytes;
  for (int ordinal : borrowed.ordinals) {
    const auto peer = peers_.Reach(ordinal);
    if (!peer.ok()) {
      if (borrowed.needed) return peer.status();
      Log(LogLevel::kWarn, "the link of GPU %d is not borrowed: %s", ordinal,
          peer.status().message().c_str());
      continue;
    }
    links_.peers.push_back(peer.value());
    capabilities_.description += Format(", link of GPU %d", ordinal);
  }
  return {};
}

Result<int64_t> CudaDevice::FreeBytes() {
  size_t free = 0, total = 0;
  OOC_TRY(
      Enter([&] { return driver().Check(driver().cuMemGetInfo(&free, &total), "cuMemGetInfo"); }));
  return static_cast<int64_t>(free);
}

Result<void*> CudaDevice::Allocate(int64_t bytes) {
  CUdeviceptr address = 0;
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  OOC_TRY(Enter([&] { return driver().Check(driver().cuMemAlloc(&address, size), "cuMemAlloc"); })
              .With(Format("%lld bytes on %s", static_cast<long long>(bytes),
                           capabilities_.name.c_str())));
  CountHeld(gpu_->ordinal(), bytes);
  return PointerTo(address);
}

void CudaDevice::Free(void* buffer, int64_t bytes) {
  if (buffer == nullptr) return;
  const Current current(gpu_->context());
  driver().cuMemFree(Address(buffer));
  CountHeld(gpu_->ordinal(), -bytes);
}

Result<void*> CudaDevice::AllocateHost(int64_t bytes) {
  const Current current(gpu_->context());
  OOC_TRY(current.status());
  return AllocatePinned(driver(), bytes);
}

void CudaDevice::FreeHost(void* memory, int64_t bytes) {
  if (memory == nullptr) return;
  const Current current(gpu_->context());
  FreePinned(driver(), memory, bytes);
}

Status CudaDevice::PinHost(void* memory, int64_t bytes) {
  return Enter([&] { return Pin(driver(), memory, bytes); });
}

void CudaDevice::UnpinHost(void* memory, int64_t) {
  const Current current(gpu_->context());
  Unpin(driver(), memory);
}

Result<Location> CudaDevice::Locate(const void* memory, int64_t bytes) {
  const Current current(gpu_->context());
  OOC_TRY(current.status());
  OOC_ASSIGN(const PointerFacts facts,
             FactsOf(driver(), Address(memory), static_cast<uint64_t>(bytes)));
  return LocationOf(facts, Address(memory), gpu_->ordinal());
}

Result<Stream> CudaDevice::CreateStream(const char* name) {
  const Current current(gpu_->context());
  OOC_TRY(current.status());
  const bool computes = name != nullptr && std::strcmp(name, "compute") == 0;
  OOC_ASSIGN(std::unique_ptr<CudaStream> stream,
             CudaStream::Make(*gpu_, computes ? gpu_->least_priority() : gpu_->greatest_priority(),
                              computes ? BorrowedLinks() : links_));
  return reinterpret_cast<Stream>(stream.release());
}

Result<Stream> CudaDevice::AdoptStream(void* native) {
  return reinterpret_cast<Stream>(
      CudaStream::Adopt(*gpu_, static_cast<CUstream>(native)).release());
}

void CudaDevice::DestroyStream(Stream stream) {
  const Current current(gpu_->context());
  delete &Of(stream);
}

// A host that sleeps while it waits leaves the cores to staging, but the interrupt holds a busy
// copy engine up for microseconds; and so does a time stamp.
Result<Event> CudaDevice::CreateEvent(EventUse use) {
  unsigned flags = CU_EVENT_DISABLE_TIMING;
  if (use == EventUse::kHost) flags |= CU_EVENT_BLOCKING_SYNC;
  CUevent event = nullptr;
  OOC_TRY(Enter(
      [&] { return driver().Check(driver().cuEventCreate(&event, flags), "cuEventCreate"); }));
  return reinterpret_cast<Event>(event);
}

void CudaDevice::DestroyEvent(Event event) {
  const Current current(gpu_->context());
  driver().cuEventDestroy(Of(event));
}

Status CudaDevice::Record(Event event, Stream stream) {
  return Enter([&] { return Of(stream).Record(Of(event)); });
}

Status CudaDevice::Wait(Stream stream, Event event) {
  return Enter([&] { return Of(stream).Wait(Of(event)); });
}

Status CudaDevice::Synchronize(Event event) {
  return Enter(
      [&] { return driver().Check(driver().cuEventSynchronize(Of(event)), "cuEventSynchronize"); });
}

Status CudaDevice::SynchronizeStream(Stream stream) {
  return Enter([&] { return Of(stream).Synchronize(); });
}

double CudaDevice::BusySeconds(Stream stream) {
  const Current current(gpu_->context());
  return Of(stream).BusySeconds();
}

Status CudaDevice::Fetch(Stream stream, const Transfer& transfer) {
  return Put(stream, transfer.tag, {Kind::kCopy}, WeightOf(transfer),
             [&](CUstream) { return copier_.Fetch(Of(stream), transfer); });
}

Status CudaDevice::Drain(Stream stream, const Transfer& transfer) {
  return Put(stream, transfer.tag, {Kind::kCopy}, WeightOf(transfer),
             [&](CUstream) { return copier_.Drain(Of(stream), transfer); });
}

Status CudaDevice::Move(Stream stream, const TileMove& move) {
  return Put(stream, move.tag, {Kind::kMove}, Product(move.extent),
             [&](CUstream) { return copier_.Move(Of(stream), move); });
}

Status CudaDevice::Fill(Stream stream, void* buffer, int64_t bytes, int byte) {
  if (bytes <= 0) return {};
  return Put(stream, Tag{}, {Kind::kMove}, bytes, [&](CUstream handle) {
    return driver().Check(
        driver().cuMemsetD8Async(Address(buffer), static_cast<unsigned char>(byte),
                                 static_cast<size_t>(bytes), handle),
        "cuMemsetD8Async");
  });
}

Result<std::unique_ptr<Executable>> CudaDevice::Prepare(int engine, const TileOp& op) {
  if (engine < 0 || engine >= static_cast<int>(engines_.size())) {
    return Error(Code::kInternal, "%s has %zu engines, and was asked for number %d",
                 capabilities_.name.c_str(), engines_.size(), engine);
  }
  const Current current(gpu_->context());
  OOC_TRY(current.status());
  CudaEngine& chosen = *engines_[static_cast<size_t>(engine)];
  auto prepared = chosen.Prepare(op);
  if (!prepared.ok()) return std::move(prepared).status().With(chosen.info().name);
  return std::unique_ptr<Executable>(std::move(prepared).value());
}

Status CudaDevice::Run(Stream stream, Executable& executable, const RunArgs& args) {
  auto& prepared = static_cast<CudaExecutable&>(executable);
  return Put(stream, args.tag, {Kind::kRun, &executable}, 1,
             [&](CUstream handle) { return prepared.Run(handle, args); });
}

Status CudaDevice::Finish(Stream stream, const FinishArgs& args) {
  if (args.pooled.any()) {
    OOC_ASSIGN(const std::vector<PoolForwardPlan> plans,
               PlanPoolForward(args, gpu_->multiprocessors()));
    return Put(stream, args.tag, {Kind::kFinish}, args.layout->bytes, [&](CUstream handle) {
      for (const PoolForwardPlan& plan : plans) {
        OOC_TRY(plan.dense  ? Launch(handle, *plan.dense)
                : plan.copy ? copier_.CopyInside(handle, *plan.copy)
                            : gpu_->Launch(Kernel::kPoolForward, plan.shape, handle, plan.args));
      }
      return Status();
    });
  }
  OOC_ASSIGN(const FinishPlan plan, PlanFinish(args, gpu_->multiprocessors()));
  if (plan.shape.blocks == 0) return {};
  if (const auto dense = PlanDenseFinish(args, gpu_->multiprocessors())) {
    return Put(stream, args.tag, {Kind::kFinish}, args.layout->bytes,
               [&](CUstream handle) { return Launch(handle, *dense); });
  }
  return Put(stream, args.tag, {Kind::kFinish}, args.layout->bytes, [&](CUstream handle) {
    return gpu_->Launch(Kernel::kFinish, plan.shape, handle, plan.args);
  });
}

Status CudaDevice::PoolBackward(Stream stream, const PoolBackwardArgs& args) {
  OOC_ASSIGN(const PoolBackwardPlan plan, PlanPoolBackward(args, gpu_->multiprocessors()));
  if (plan.shape.blocks == 0) return {};
  return Put(stream, args.tag, {Kind::kFinish}, args.layout->bytes, [&](CUstream handle) {
    return gpu_->Launch(Kernel::kPoolBackward, plan.shape, handle, plan.args);
  });
}

Status CudaDevice::Norm(Stream stream, const NormArgs& args) {
  OOC_ASSIGN(const NormPlan plan, PlanNorm(args, gpu_->multiprocessors()));
  if (plan.shape.blocks == 0) return {};
  const Kernel kernel = args.pass == NormPass::kSum ? Kernel::kSum : Kernel::kNormalize;
  return Put(stream, args.tag, {Kind::kFinish}, args.layout->bytes,
             [&](CUstream handle) { return gpu_->Launch(kernel, plan.shape, handle, plan.args); });
}

}  // namespace
}  // namespace cuda

int CountCudaDevices() {
  int count = 0;
  const auto driver = cuda::LoadDriver();
  return driver.ok() && driver.value()->cuDeviceGetCount(&count) == CUDA_SUCCESS ? count : 0;
}

Result<std::unique_ptr<Device>> MakeCudaDevice(const CudaOptions& options) {
  OOC_ASSIGN(std::unique_ptr<cuda::Gpu> gpu,
             cuda::Gpu::Open({options.ordinal, options.nvrtc_path, options.cache_folder}));
  std::string why_not;
  cuda::CudaEngines engines = cuda::MakeEngines(*gpu, options, &why_not);
  if (engines.empty()) {
    return Error(Code::kUnsupported, "the CUDA device has no engine '%s'; %s",
                 options.engine.c_str(), why_not.c_str());
  }
  auto device = std::make_unique<cuda::CudaDevice>(std::move(gpu), std::move(engines), why_not);
  OOC_TRY(device->Borrow(options.borrowed));
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace oocdnn
