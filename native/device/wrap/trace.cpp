// A device that records when each piece of work ran, and how many bytes of buffers were held.
//
// Every piece of work gets a Span of ours; the client's own, where it passed one, is filled in when
// the host knows that the work has run. Fill carries no Tag, so it leaves no trace.
#include <algorithm>
#include <deque>
#include <unordered_map>

#include "base/json.hpp"
#include "base/watch.hpp"
#include "device/wrap/chrome_trace.hpp"
#include "device/wrap/ordered_device.hpp"
#include "device/wrap/wrap.hpp"

namespace oocdnn {
namespace {

std::string Text(const Dims& dims) {
  std::string text = "[";
  for (size_t d = 0; d < dims.size(); ++d) {
    text += Format(d == 0 ? "%lld" : ",%lld", static_cast<long long>(dims[d]));
  }
  return text + "]";
}

class TraceDevice final : public OrderedDevice {
 public:
  explicit TraceDevice(std::unique_ptr<Device> device) : OrderedDevice(std::move(device)) {}

  std::string Take();

  Result<void*> Allocate(int64_t bytes) override;
  void Free(void* buffer, int64_t bytes) override;
  Result<Stream> CreateStream(const char* name) override;
  Result<Stream> AdoptStream(void* native) override;
  void DestroyStream(Stream stream) override;
  void DestroyEvent(Event event) override;

  Status Fetch(Stream stream, const Transfer& transfer) override {
    return Copy(stream, "fetch", transfer, &Device::Fetch);
  }
  Status Drain(Stream stream, const Transfer& transfer) override {
    return Copy(stream, "drain", transfer, &Device::Drain);
  }
  Status Move(Stream stream, const TileMove& move) override;
  Status Run(Stream stream, Executable& executable, const RunArgs& args) override;
  Status Finish(Stream stream, const FinishArgs& args) override;
  Status PoolBackward(Stream stream, const PoolBackwardArgs& args) override;
  Status Norm(Stream stream, const NormArgs& args) override;

 private:
  struct Entry {
    Span span;
    Span* client = nullptr;  // null once filled in
    Order::Point at;
    std::string name, args;
  };
  struct Bytes {
    int64_t at_ns, held;
  };

  Status Copy(Stream stream, const char* verb, const Transfer& transfer,
              Status (Device::*enqueue)(Stream, const Transfer&));
  // Adds an entry, calls enqueue(tag) with our span in the tag, and takes the entry back on error.
  template <class Enqueue>
  Status Traced(Stream stream, Tag tag, std::string name, std::string args, Enqueue enqueue);
  // The same of a pass over a tile of that operand.
  template <class Args>
  Status TracedPass(Stream stream, const Args& args, const char* verb, const char* operand,
                    Status (Device::*pass)(Stream, const Args&));
  void Count(int64_t change);
  // Waits for all streams without touching their errors; what could not be waited for stays.
  void WaitForAll();
  void Learn() override;

  std::unordered_map<Stream, int> streams_;
  std::vector<std::string> stream_names_;  // by Order's number
  std::deque<Entry> entries_;              // addresses of spans must stay
  std::vector<Bytes> bytes_;
  int64_t held_ = 0;
};

void TraceDevice::Count(int64_t change) {
  const std::lock_guard lock(mutex_);
  held_ += change;
  bytes_.push_back({Now(), held_});
}

Result<void*> TraceDevice::Allocate(int64_t bytes) {
  OOC_ASSIGN(void* buffer, inner().Allocate(bytes));
  Count(bytes);
  return buffer;
}

void TraceDevice::Free(void* buffer, int64_t bytes) {
  inner().Free(buffer, bytes);
  if (buffer != nullptr) Count(-bytes);
}

Result<Stream> TraceDevice::CreateStream(const char* name) {
  OOC_ASSIGN(Stream stream, inner().CreateStream(name));
  const std::lock_guard lock(mutex_);
  streams_[stream] = order_.AddStream(stream);
  stream_names_.emplace_back(name);
  return stream;
}

Result<Stream> TraceDevice::AdoptStream(void* native) {
  OOC_ASSIGN(Stream stream, inner().AdoptStream(native));
  const std::lock_guard lock(mutex_);
  order_.AddStream(stream);  // nobody waits for it here: it may be gone before its handle
  stream_names_.emplace_back("caller");
  return stream;
}

void TraceDevice::DestroyStream(Stream stream) {
  WaitForAll();  // its spans are written to until then
  {
    const std::lock_guard lock(mutex_);
    streams_.erase(stream);
    order_.RemoveStream(stream);
  }
  inner().DestroyStream(stream);
}

void TraceDevice::DestroyEvent(Event event) {
  {
    const std::lock_guard lock(mutex_);
    order_.RemoveEvent(event);
  }
  inner().DestroyEvent(event);
}

void TraceDevice::Learn() {
  for (Entry& entry : entries_) {
    if (entry.client == nullptr || !order_.Done(entry.at)) continue;
    *entry.client = entry.span;
    entry.client = nullptr;
  }
}

template <class Enqueue>
Status TraceDevice::Traced(Stream stream, Tag tag, std::string name, std::string args,
                           Enqueue enqueue) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_.emplace_back();
  entry.client = tag.span;
  entry.name = std::move(name);
  entry.args = std::move(args);
  tag.span = &entry.span;
  Status status = enqueue(tag);
  if (status.ok()) {
    entry.at = order_.Enqueue(stream);
  } else {
    entries_.pop_back();
  }
  return status;
}

Status TraceDevice::Copy(Stream stream, const char* verb, const Transfer& transfer,
                         Status (Device::*enqueue)(Stream, const Transfer&)) {
  // What it is called is that of the place: a copy does not know whether x is a gradient.
  const char* const operand = Name(transfer.operand, Direction::kForward);
  const auto step = static_cast<long long>(transfer.tag.step);
  const int64_t bytes = transfer.box.ValidElements() * SizeOf(transfer.view.dtype);
  return Traced(stream, transfer.tag, Format("%s %s %lld", verb, operand, step),
                Format(R"({"step":%lld,"operand":"%s","bytes":%lld,"origin":%s,"extent":%s})", step,
                       operand, static_cast<long long>(bytes), Text(transfer.box.origin).c_str(),
                       Text(transfer.box.extent).c_str()),
                [&](const Tag& tag) {
                  Transfer traced = transfer;
                  traced.tag = tag;
                  return (inner().*enqueue)(stream, traced);
                });
}

Status TraceDevice::Move(Stream stream, const TileMove& move) {
  const char* const operand = Name(move.operand, Direction::kForward);
  const auto step = static_cast<long long>(move.tag.step);
  const int64_t bytes = Product(move.extent) * SizeOf(move.layout->dtype);
  return Traced(stream, move.tag, Format("move %s %lld", operand, step),
                Format(R"({"step":%lld,"operand":"%s","bytes":%lld,"extent":%s})", step, operand,
                       static_cast<long long>(bytes), Text(move.extent).c_str()),
                [&](const Tag& tag) {
                  TileMove traced = move;
                  traced.tag = tag;
                  return inner().Move(stream, traced);
                });
}

Status TraceDevice::Run(Stream stream, Executable& executable, const RunArgs& args) {
  const auto step = static_cast<long long>(args.tag.step);
  return Traced(stream, args.tag, Format("run %lld", step),
                Format(R"({"step":%lld,"engine":%s,"accumulate":%s})", step,
                       JsonString(executable.engine()).c_str(), args.accumulate ? "true" : "false"),
                [&](const Tag& tag) {
                  RunArgs traced = args;
                  traced.tag = tag;
                  return inner().Run(stream, executable, traced);
                });
}

template <class Args>
Status TraceDevice::TracedPass(Stream stream, const Args& args, const char* verb,
                               const char* operand, Status (Device::*pass)(Stream, const Args&)) {
  const auto step = static_cast<long long>(args.tag.step);
  return Traced(stream, args.tag, Format("%s %s %lld", verb, operand, step),
                Format(R"({"step":%lld,"operand":"%s","bytes":%lld})", step, operand,
                       static_cast<long long>(args.layout->bytes)),
                [&](const Tag& tag) {
                  Args traced = args;
                  traced.tag = tag;
                  return (inner().*pass)(stream, traced);
                });
}

Status TraceDevice::Finish(Stream stream, const FinishArgs& args) {
  const char* const operand = Name(args.operand, Direction::kForward);
  return TracedPass(stream, args, "finish", operand, &Device::Finish);
}

Status TraceDevice::PoolBackward(Stream stream, const PoolBackwardArgs& args) {
  return TracedPass(stream, args, "restore", "dy", &Device::PoolBackward);
}

Status TraceDevice::Norm(Stream stream, const NormArgs& args) {
  const char* const verb = args.pass == NormPass::kSum ? "sum up" : "normalize";
  const char* const operand = Name(args.operand, Direction::kForward);
  return TracedPass(stream, args, verb, operand, &Device::Norm);
}

void TraceDevice::WaitForAll() {
  Result<Event> event = inner().CreateEvent(EventUse::kHost);
  if (!event.ok()) return;
  std::vector<std::pair<Stream, Order::Clock>> targets;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [stream, number] : streams_) targets.emplace_back(stream, order_.Of(stream));
  }
  for (const auto& [stream, clock] : targets) {
    const Status recorded = inner().Record(event.value(), stream);
    if (recorded.ok() && inner().Synchronize(event.value()).ok()) Synchronized(clock);
  }
  inner().DestroyEvent(event.value());
}

std::string TraceDevice::Take() {
  WaitForAll();
  const std::lock_guard lock(mutex_);
  int64_t origin = bytes_.empty() ? INT64_MAX : bytes_.front().at_ns;
  for (const Entry& entry : entries_) {
    if (order_.Done(entry.at) && entry.span.end_ns != 0) {
      origin = std::min(origin, entry.span.begin_ns);
    }
  }
  ChromeTrace trace(origin);
  for (size_t i = 0; i < stream_names_.size(); ++i) {
    trace.NameTrack(static_cast<int>(i), stream_names_[i]);
  }
  for (const Bytes& bytes : bytes_) trace.Count("device bytes", bytes.at_ns, bytes.held);
  // Work that was skipped behind an error has no times. What is not known to be done is written to.
  for (const Entry& entry : entries_) {
    if (!order_.Done(entry.at) || entry.span.end_ns == 0) continue;
    trace.Add(entry.at.stream, entry.name, entry.span.begin_ns, entry.span.end_ns, entry.args);
  }
  while (!entries_.empty() && order_.Done(entries_.front().at)) entries_.pop_front();
  bytes_.clear();
  return trace.Finish();
}

}  // namespace

std::unique_ptr<Device> MakeTraceDevice(std::unique_ptr<Device> inner) {
  return std::make_unique<TraceDevice>(std::move(inner));
}

std::string TakeTrace(Device& trace_device) {
  return static_cast<TraceDevice&>(trace_device).Take();
}

}  // namespace oocdnn
