#include "exec/staging.hpp"

namespace oocdnn {

Status Staging::Init() {
  for (auto& pair : event_) {
    for (OwnedEvent& event : pair) {
      OOC_ASSIGN(event, MakeEvent(device_));
    }
  }
  return {};
}

Status Staging::Begin(const HostTensors& tensors, const std::array<Dims, kOperands>& box_extent,
                      const std::array<bool, kOperands>& used, Slabs& slabs) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < kOperands; ++i) {
    lanes_[i] = Lane{};
    lanes_[i].tensor = tensors[i];
    lanes_[i].active = used[i] && tensors[i].in_file();
    if (!lanes_[i].active) continue;
    const int64_t bytes = PackedLayout(tensors[i].file(), box_extent[i]).bytes;
    sizes.insert(sizes.end(), {bytes, bytes});
  }
  OOC_TRY(slabs.Reserve(sizes));
  size_t next = 0;
  for (Lane& lane : lanes_) {
    if (!lane.active) continue;
    for (void*& slab : lane.slab) slab = slabs.At(next++);
  }
  return {};
}

TensorView Staging::ViewOf(const Lane& lane, int which) const {
  const Box& box = lane.box[static_cast<size_t>(which)];
  Dims extent{};
  for (int d = 0; d < 6; ++d) extent[d] = box.end[d] - box.begin[d];
  TensorView view = lane.tensor.view;
  view.stride = PackedLayout(lane.tensor.file(), extent).stride;
  int64_t back = 0;  // the view's element (0, ..., 0) lies before the slab
  for (int d = 0; d < 6; ++d) back += box.begin[d] * view.stride[d];
  view.data = static_cast<char*>(lane.slab[static_cast<size_t>(which)]) - back * SizeOf(view.dtype);
  return view;
}

Status Staging::Post(Operand operand, const Dims& begin, const Dims& end) {
  Lane& lane = lanes_[Index(operand)];
  const auto which = static_cast<size_t>(lane.head % 2);
  // The fetch that last read this slab must have run before the reader overwrites it.
  OOC_TRY(device_.Synchronize(event_[Index(operand)][which].get()));
  void* slab = lane.slab[which];
  const FileTensor file = lane.tensor.file();
  lane.box[which] = {begin, end, 0};
  lane.box[which].ticket =
      reader_.Submit([file, begin, end, slab] { return ReadBox(file, begin, end, slab); });
  ++lane.head;
  return {};
}

Result<TensorView> Staging::Take(Operand operand) {
  Lane& lane = lanes_[Index(operand)];
  const int which = static_cast<int>(lane.tail % 2);
  OOC_TRY(reader_.Wait(lane.box[static_cast<size_t>(which)].ticket));
  return ViewOf(lane, which);
}

Status Staging::Taken(Operand operand, Stream stream) {
  Lane& lane = lanes_[Index(operand)];
  const auto which = static_cast<size_t>(lane.tail % 2);
  ++lane.tail;
  return device_.Record(event_[Index(operand)][which].get(), stream);
}

Result<TensorView> Staging::Give(Operand operand, const Dims& begin, const Dims& end) {
  Lane& lane = lanes_[Index(operand)];
  if (lane.head - lane.tail >= 2) OOC_TRY(Flush(operand, 1));
  const int which = static_cast<int>(lane.head % 2);
  // The writer must have emptied this slab before it is drained into again.
  OOC_TRY(writer_.Wait(lane.box[static_cast<size_t>(which)].ticket));
  lane.box[static_cast<size_t>(which)] = {begin, end, 0};
  return ViewOf(lane, which);
}

Status Staging::Given(Operand operand, Stream stream) {
  Lane& lane = lanes_[Index(operand)];
  const auto which = static_cast<size_t>(lane.head % 2);
  ++lane.head;
  return device_.Record(event_[Index(operand)][which].get(), stream);
}

Status Staging::Flush(Operand operand, int keep) {
  Lane& lane = lanes_[Index(operand)];
  while (lane.active && lane.head - lane.tail > keep) {
    const auto which = static_cast<size_t>(lane.tail % 2);
    OOC_TRY(device_.Synchronize(event_[Index(operand)][which].get()));
    const FileTensor file = lane.tensor.file();
    const Dims begin = lane.box[which].begin, end = lane.box[which].end;
    const void* slab = lane.slab[which];
    lane.box[which].ticket =
        writer_.Submit([file, begin, end, slab] { return WriteBox(file, begin, end, slab); });
    ++lane.tail;
  }
  return {};
}

Status Staging::End() {
  Status read = reader_.Finish();
  Status written = writer_.Finish();
  return read.ok() ? std::move(written) : std::move(read);
}

}  // namespace oocdnn
