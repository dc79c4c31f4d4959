#include "exec/staging.hpp"

#include <algorithm>
#include <thread>

#include "exec/host_copy.hpp"

namespace oocdnn {
namespace {

// Eight threads copy 68 GB/s where the wire carries 55 in each direction.
constexpr int kFillTheWire = 12;

int ThreadsFor(int wanted) {
  if (wanted > 0) return wanted;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kFillTheWire);
}

}  // namespace

Staging::Staging(Device& device, int threads) : device_(device), team_(ThreadsFor(threads)) {}

Status Staging::Init() {
  for (auto& row : event_) {
    for (OwnedEvent& event : row) {
      OOC_ASSIGN(event, MakeEvent(device_, EventUse::kHost));
    }
  }
  return {};
}

Event Staging::EventOf(Operand operand, int64_t box) const {
  const auto& row = event_[Index(operand)];
  return row[static_cast<size_t>(box) % lanes_[Index(operand)].slab.size()].get();
}

bool Staging::Reaches(const HostTensor& tensor) const {
  if (tensor.in_file()) return false;
  return tensor.tier != Tier::kPageable || device_.capabilities().reads_host;
}

Status Staging::Begin(const HostTensors& tensors, const Uses& uses, Slabs& slabs) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < kOperands; ++i) {
    Lane& lane = lanes_[i];
    lane = Lane{};
    lane.tensor = tensors[i];
    if (!uses[i].used || Reaches(tensors[i])) continue;
    const TensorView& view = tensors[i].view;
    lane.packing = PackingOf(view.dtype, view.stride, uses[i].box);
    const int64_t bytes = PackedLayout(lane.packing, uses[i].box).bytes;
    const size_t count = uses[i].written ? kWriteSlabs : kReadSlabs;
    lane.slab.resize(uses[i].single ? 1 : count);
    sizes.insert(sizes.end(), lane.slab.size(), bytes);
  }
  Status reserved = slabs.Reserve(sizes);
  size_t next = 0;
  for (Lane& lane : lanes_) {
    if (!reserved.ok()) lane.slab.clear();
    for (Slab& slab : lane.slab) slab.memory = slabs.At(next++);
  }
  return reserved;
}

TensorView Staging::ViewOf(const Lane& lane, const Slab& slab) const {
  Dims extent{};
  for (int d = 0; d < 6; ++d) extent[d] = slab.end[d] - slab.begin[d];
  TensorView view = lane.tensor.view;
  view.stride = PackedLayout(lane.packing, extent).stride;
  int64_t back = 0;  // the view's element (0, ..., 0) lies before the slab
  for (int d = 0; d < 6; ++d) back += slab.begin[d] * view.stride[d];
  view.data = static_cast<char*>(slab.memory) - back * SizeOf(view.dtype);
  return view;
}

// The fetch that last read this slab must have run before the reader overwrites it.
Status Staging::Post(Operand operand, const Dims& begin, const Dims& end) {
  Lane& lane = lanes_[Index(operand)];
  Slab& slab = lane.at(lane.head);
  slab.begin = begin;
  slab.end = end;
  const auto job = [this, event = EventOf(operand, lane.head), &lane, slab]() -> Status {
    OOC_TRY(device_.Synchronize(event));
    if (lane.tensor.in_file()) return ReadBox(lane.file(), slab.begin, slab.end, slab.memory);
    PackBox(team_, lane.tensor.view.data, lane.packing, slab.begin, slab.end, slab.memory);
    return {};
  };
  OOC_ASSIGN(slab.ticket, reader_.Submit(job));
  ++lane.head;
  return {};
}

Result<TensorView> Staging::Take(Operand operand) {
  Lane& lane = lanes_[Index(operand)];
  const Slab& slab = lane.at(lane.tail);
  OOC_TRY(reader_.Wait(slab.ticket));
  return ViewOf(lane, slab);
}

Status Staging::Taken(Operand operand, Stream stream) {
  Lane& lane = lanes_[Index(operand)];
  return device_.Record(EventOf(operand, lane.tail++), stream);
}

Result<TensorView> Staging::Give(Operand operand, const Dims& begin, const Dims& end) {
  Lane& lane = lanes_[Index(operand)];
  Slab& slab = lane.at(lane.head);
  OOC_TRY(writer_.Wait(slab.ticket));
  slab.begin = begin;
  slab.end = end;
  return ViewOf(lane, slab);
}

Status Staging::Given(Operand operand, Stream stream) {
  Lane& lane = lanes_[Index(operand)];
  const Event event = EventOf(operand, lane.head);
  OOC_TRY(device_.Record(event, stream));
  Slab& slab = lane.at(lane.head++);
  const auto job = [this, event, &lane, slab]() -> Status {
    OOC_TRY(device_.Synchronize(event));
    if (lane.tensor.in_file()) return WriteBox(lane.file(), slab.begin, slab.end, slab.memory);
    UnpackBox(team_, lane.tensor.view.data, lane.packing, slab.begin, slab.end, slab.memory);
    return {};
  };
  OOC_ASSIGN(slab.ticket, writer_.Submit(job));
  return {};
}

Status Staging::End() {
  Status read = reader_.Finish();
  Status written = writer_.Finish();
  return read.ok() ? std::move(written) : std::move(read);
}

}  // namespace oocdnn
