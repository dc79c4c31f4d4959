// A device that checks its client. Every call goes to the wrapped device first; what was accepted
// is then entered into the order of events and compared with earlier accesses. A report never
// changes what the call returns.
//
// The guards take a stream and some memory of the wrapped device: wrap a fault or limit device
// around the check device, not the other way, where its counts should be the client's own.
#include "device/wrap/check_device.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/checked.hpp"
#include "device/wrap/checked_executable.hpp"
#include "device/wrap/guards.hpp"
#include "device/wrap/hazards.hpp"
#include "device/wrap/ordered_device.hpp"
#include "device/wrap/wrap.hpp"

namespace oocdnn {
namespace {

constexpr size_t kMostReports = 200;

// A copy does not know for which direction it is made: x, w, y stand for gradients too.
const char* PlainName(Operand operand) { return Name(operand, Direction::kForward); }

AccessRegion PartOf(const Transfer& transfer) {
  return TileRegion(transfer.tile, *transfer.layout, transfer.tile_begin, transfer.tile_end);
}

class CheckDevice final : public OrderedDevice {
 public:
  explicit CheckDevice(std::unique_ptr<Device> device)
      : OrderedDevice(std::move(device)), guards_(inner()) {}
  ~CheckDevice() override { *gone_ = nullptr; }
  CheckDevice(const CheckDevice&) = delete;
  CheckDevice& operator=(const CheckDevice&) = delete;

  // An executable whose last run was at `point` is about to be destroyed.
  void ExecutableGoes(const Order::Point& point);
  [[nodiscard]] std::vector<std::string> reports() const {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  [[nodiscard]] std::vector<std::string> leaks() const;

  Result<int64_t> FreeBytes() override {
    OOC_ASSIGN(const int64_t free, inner().FreeBytes());
    return std::max<int64_t>(free - guards_.overhead(), 0);
  }
  Result<void*> Allocate(int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    return guards_.Allocate(bytes);
  }
  void Free(void* buffer, int64_t bytes) override;
  Result<void*> AllocateHost(int64_t bytes) override;
  void FreeHost(void* memory, int64_t bytes) override;
  void UnpinHost(void* memory, int64_t bytes) override;

  Result<Stream> CreateStream(const char* name) override;
  Result<Stream> AdoptStream(void* native) override;
  void DestroyStream(Stream stream) override;
  Result<Event> CreateEvent(EventUse use) override;
  void DestroyEvent(Event event) override;

  Status Fetch(Stream stream, const Transfer& transfer) override;
  Status Drain(Stream stream, const Transfer& transfer) override;
  Status Move(Stream stream, const TileMove& move) override;
  Status Fill(Stream stream, void* buffer, int64_t bytes, int byte) override;
  Result<std::unique_ptr<Executable>> Prepare(int engine, const TileOp& op) override;
  Status Run(Stream stream, Executable& executable, const RunArgs& args) override;
  Status Finish(Stream stream, const FinishArgs& args) override;
  Status PoolBackward(Stream stream, const PoolBackwardArgs& args) override;
  Status Norm(Stream stream, const NormArgs& args) override;

 private:
  void Learn() override { hazards_.Prune(order_); }

  // One piece of work while its accesses are entered.
  struct Work {
    Stream stream;
    Order::Point at;
    const char* verb;
    int64_t step;
  };
  Work Enqueue(Stream stream, const char* verb, int64_t step) {
    return {stream, order_.Enqueue(stream), verb, step};
  }
  void Host(const Work& work, const Transfer& transfer, bool write);
  void Tile(const Work& work, const void* tile, int64_t bytes, const char* operand, bool write) {
    Tile(work, BytesAt(tile, bytes), operand, write);
  }
  void Tile(const Work& work, const AccessRegion& region, const char* operand, bool write);
  void Slot(const Work& work, const void* slot, const char* operand, bool output = false);
  void Enter(const Work& work, const AccessRegion& region, const char* operand, bool write);
  void Report(std::string sentence) {
    if (reports_.size() < kMostReports) reports_.push_back(std::move(sentence));
  }
  void ReportAll(std::vector<std::string>& sentences) {
    for (std::string& sentence : sentences) Report(std::move(sentence));
  }

  const OnExecutableGone gone_ = std::make_shared<std::function<void(const Order::Point&)>>(
      [this](const Order::Point& point) { ExecutableGoes(point); });
  Guards guards_;
  Hazards hazards_;
  std::vector<std::string> stream_names_;  // by Order's number
  std::unordered_map<Stream, std::string> streams_;
  std::unordered_set<Event> events_;
  std::unordered_map<void*, int64_t> host_memory_;
  std::vector<std::string> reports_;
};

void CheckDevice::ExecutableGoes(const Order::Point& point) {
  const std::lock_guard lock(mutex_);
  if (!order_.Done(point)) {
    Report("an executable was destroyed while a run may still use it: synchronise first");
  }
}

std::vector<std::string> CheckDevice::leaks() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> sentences;
  for (const int64_t bytes : guards_.Live()) {
    sentences.push_back(
        Format("a buffer of %lld bytes was never freed", static_cast<long long>(bytes)));
  }
  for (const auto& [memory, bytes] : host_memory_) {
    sentences.push_back(
        Format("host memory of %lld bytes was never freed", static_cast<long long>(bytes)));
  }
  for (const auto& [stream, name] : streams_) {
    sentences.push_back("stream \"" + name + "\" was never destroyed");
  }
  if (!events_.empty()) {
    sentences.push_back(Format("%zu events were never destroyed", events_.size()));
  }
  return sentences;
}

void CheckDevice::Free(void* buffer, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::string user = hazards_.InFlight(order_, BytesAt(buffer, bytes), stream_names_);
  if (!user.empty()) {
    Report("a buffer was freed while " + user + " may still use it: synchronise first");
  }
  std::vector<std::string> sentences;
  guards_.Free(buffer, bytes, &sentences);
  ReportAll(sentences);
}

Result<void*> CheckDevice::AllocateHost(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  OOC_ASSIGN(void* memory, inner().AllocateHost(bytes));
  host_memory_[memory] = bytes;
  return memory;
}

void CheckDevice::FreeHost(void* memory, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (memory == nullptr) return;
  if (host_memory_.erase(memory) == 0) {
    Report(Format("FreeHost of %p, which is not live: freed twice or never allocated", memory));
    return;
  }
  const std::string user = hazards_.InFlight(order_, BytesAt(memory, bytes), stream_names_);
  if (!user.empty()) {
    Report("host memory was freed while " + user + " may still use it: synchronise first");
  }
  inner().FreeHost(memory, bytes);
}

void CheckDevice::UnpinHost(void* memory, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::string user = hazards_.InFlight(order_, BytesAt(memory, bytes), stream_names_);
  if (!user.empty()) {
    Report("host memory was unpinned while " + user + " may still use it: synchronise first");
  }
  inner().UnpinHost(memory, bytes);
}

Result<Stream> CheckDevice::CreateStream(const char* name) {
  const std::lock_guard lock(mutex_);
  OOC_ASSIGN(Stream stream, inner().CreateStream(name));
  order_.AddStream(stream);
  stream_names_.emplace_back(name);
  streams_[stream] = name;
  return stream;
}

Result<Stream> CheckDevice::AdoptStream(void* native) {
  const std::lock_guard lock(mutex_);
  OOC_ASSIGN(Stream stream, inner().AdoptStream(native));
  order_.AddStream(stream);
  stream_names_.emplace_back("caller");
  streams_[stream] = "caller";
  return stream;
}

void CheckDevice::DestroyStream(Stream stream) {
  {
    const std::lock_guard lock(mutex_);
    if (stream == nullptr) return;
    if (streams_.erase(stream) == 0) {
      Report("DestroyStream of a stream that does not exist (any more)");
      return;
    }
    order_.RemoveStream(stream);
  }
  inner().DestroyStream(stream);
}

Result<Event> CheckDevice::CreateEvent(EventUse use) {
  const std::lock_guard lock(mutex_);
  OOC_ASSIGN(Event event, inner().CreateEvent(use));
  events_.insert(event);
  return event;
}

void CheckDevice::DestroyEvent(Event event) {
  const std::lock_guard lock(mutex_);
  if (event == nullptr) return;
  if (events_.erase(event) == 0) {
    Report("DestroyEvent of an event that does not exist (any more)");
    return;
  }
  order_.RemoveEvent(event);
  inner().DestroyEvent(event);
}

void CheckDevice::Enter(const Work& work, const AccessRegion& region, const char* operand,
                        bool write) {
  std::vector<std::string> sentences;
  hazards_.Add(order_, work.stream, {region, write, work.verb, operand, work.step, work.at},
               stream_names_, &sentences);
  ReportAll(sentences);
}

void CheckDevice::Tile(const Work& work, const AccessRegion& region, const char* operand,
                       bool write) {
  if (guards_.Straddles(region.begin, region.end)) {
    Report(Format("%s touches %lld bytes, which reach past the end of the buffer",
                  WorkName(work.verb, operand, work.step).c_str(),
                  static_cast<long long>(region.end - region.begin)));
  }
  Enter(work, region, operand, write);
}

// The memory of a whole tile. What an engine writes may lie in a part of another tile, which is
// aligned as the caller's memory is.
void CheckDevice::Slot(const Work& work, const void* slot, const char* operand, bool output) {
  const auto address = reinterpret_cast<uintptr_t>(slot);
  const Capabilities& promised = inner().capabilities();
  const int64_t alignment =
      guards_.Holds(address) && !output ? promised.alignment : promised.tile_alignment;
  if (address % static_cast<uintptr_t>(alignment) == 0) return;
  Report(Format("%s uses the slot %p, which is not aligned to %lld bytes",
                WorkName(work.verb, operand, work.step).c_str(), slot,
                static_cast<long long>(alignment)));
}

void CheckDevice::Host(const Work& work, const Transfer& transfer, bool write) {
  const AccessRegion region = HostRegion(transfer);
  const char* const operand = PlainName(transfer.operand);
  const Dims& begin = transfer.box.valid_begin;
  if (!region.empty() && std::any_of(begin.begin(), begin.end(), [](int64_t i) { return i < 0; })) {
    Report(WorkName(work.verb, operand, work.step) + " touches what is before the tensor's begin");
  }
  Enter(work, region, operand, write);
}

Status CheckDevice::Fetch(Stream stream, const Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  OOC_TRY(inner().Fetch(stream, transfer));
  const Work work = Enqueue(stream, "fetch", transfer.tag.step);
  Host(work, transfer, false);
  Slot(work, transfer.tile, PlainName(transfer.operand));
  Tile(work, PartOf(transfer), PlainName(transfer.operand), true);
  return {};
}

Status CheckDevice::Drain(Stream stream, const Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  OOC_TRY(inner().Drain(stream, transfer));
  const Work work = Enqueue(stream, "drain", transfer.tag.step);
  Tile(work, PartOf(transfer), PlainName(transfer.operand), false);
  Host(work, transfer, true);
  return {};
}

Status CheckDevice::Move(Stream stream, const TileMove& move) {
  const std::lock_guard lock(mutex_);
  OOC_TRY(inner().Move(stream, move));
  const Work work = Enqueue(stream, "move", move.tag.step);
  const auto part = [&](const void* tile, const Dims& begin) {
    Dims end;
    for (size_t d = 0; d < end.size(); ++d) end[d] = begin[d] + move.extent[d];
    return TileRegion(tile, *move.layout, begin, end);
  };
  Tile(work, part(move.from, move.from_begin), PlainName(move.operand), false);
  Tile(work, part(move.to, move.to_begin), PlainName(move.operand), true);
  return {};
}

Status CheckDevice::Fill(Stream stream, void* buffer, int64_t bytes, int byte) {
  const std::lock_guard lock(mutex_);
  OOC_TRY(inner().Fill(stream, buffer, bytes, byte));
  Tile(Enqueue(stream, "fill", -1), buffer, bytes, "", true);
  return {};
}

Result<std::unique_ptr<Executable>> CheckDevice::Prepare(int engine, const TileOp& op) {
  OOC_ASSIGN(std::unique_ptr<Executable> executable, inner().Prepare(engine, op));
  return std::unique_ptr<Executable>(
      std::make_unique<CheckedExecutable>(std::move(executable), op.direction, gone_));
}

Status CheckDevice::Run(Stream stream, Executable& executable, const RunArgs& args) {
  const std::lock_guard lock(mutex_);
  auto& checked = static_cast<CheckedExecutable&>(executable);
  OOC_TRY(inner().Run(stream, checked.inner(), args));
  const Work work = Enqueue(stream, "run", args.tag.step);
  checked.RanAt(work.at);
  const Operand output = OutputOf(checked.direction());
  for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY, Operand::kBias}) {
    const int64_t bytes = executable.layout(operand).bytes;
    Slot(work, args.tile[Index(operand)], Name(operand, checked.direction()), operand == output);
    Tile(work, args.tile[Index(operand)], bytes, Name(operand, checked.direction()),
         operand == output);
  }
  Slot(work, args.workspace, "workspace");
  Tile(work, args.workspace, executable.workspace_bytes(), "workspace", true);
  return {};
}

Status CheckDevice::Finish(Stream stream, const FinishArgs& args) {
  const std::lock_guard lock(mutex_);
  OOC_TRY(inner().Finish(stream, args));
  const Work work = Enqueue(stream, "finish", args.tag.step);
  const TileLayout& layout = *args.layout;
  const int64_t per_channel =
      layout.shape[1] * layout.shape[2] * SizeOf(AccumulatorOf(layout.dtype));
  Tile(work, args.old, layout.bytes, "old", false);
  Tile(work, args.residual, layout.bytes, "residual", false);
  Tile(work, args.bias, per_channel, "b", false);
  Tile(work, args.scale, per_channel, "scale", false);
  Tile(work, args.out, layout.bytes, PlainName(args.operand), true);
  const auto made = [&](const PooledTile& tile, Operand operand) {
    if (tile.data != nullptr) Tile(work, tile.data, tile.layout->bytes, PlainName(operand), true);
  };
  made(args.pooled.z, Operand::kZ);
  made(args.pooled.saved, Operand::kSaved);
  return {};
}

Status CheckDevice::PoolBackward(Stream stream, const PoolBackwardArgs& args) {
  const std::lock_guard lock(mutex_);
  OOC_TRY(inner().PoolBackward(stream, args));
  const Work work = Enqueue(stream, "restore", args.tag.step);
  Tile(work, args.z.data, args.z.layout->bytes, "dz", false);
  if (args.saved.data != nullptr) {
    Tile(work, args.saved.data, args.saved.layout->bytes, "saved", false);
  }
  Tile(work, args.dy, args.layout->bytes, "dy", true);
  return {};
}

Status CheckDevice::Norm(Stream stream, const NormArgs& args) {
  const std::lock_guard lock(mutex_);
  OOC_TRY(inner().Norm(stream, args));
  if (args.empty()) return {};
  const bool sums = args.pass == NormPass::kSum;
  const Work work = Enqueue(stream, sums ? "sum" : "normalize", args.tag.step);
  const int64_t number = SizeOf(args.TableType());
  const int64_t first = args.EntryOf(args.begin[0], args.begin[1], args.begin[2]);
  const int64_t last = args.EntryOf(args.end[0] - 1, args.end[1] - 1, args.end[2] - 1);
  if (args.table != nullptr) {
    Tile(work, static_cast<char*>(args.table) + first * number,
         (last - first + args.Numbers()) * number,
         PlainName(sums ? Operand::kSums : Operand::kPrologue), sums);
  }
  Tile(work, TileRegion(args.tile, *args.layout, args.begin, args.end), PlainName(args.operand),
       !sums);
  return {};
}

}  // namespace

std::unique_ptr<Device> MakeCheckDevice(std::unique_ptr<Device> inner) {
  return std::make_unique<CheckDevice>(std::move(inner));
}

std::vector<std::string> CheckReports(const Device& check_device) {
  return static_cast<const CheckDevice&>(check_device).reports();
}

std::vector<std::string> CheckLeaks(const Device& check_device) {
  return static_cast<const CheckDevice&>(check_device).leaks();
}

}  // namespace oocdnn
