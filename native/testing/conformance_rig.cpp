// Owners of what a case creates, and copies of whole tensors.
#include "testing/conformance_rig.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace oocdnn::testing {
namespace {

constexpr char kGap = 0x5a;

// Strides of an array, and the element that its lowest address is away from index 0.
Dims StridesOf(const Dims& dims, Memory memory) {
  Dims wide = dims;
  switch (memory) {
    case Memory::kDense: return DenseStrides(dims);
    case Memory::kChannelsLast: return ChannelsLastStrides(dims);
    case Memory::kGapped:
      wide[5] += 3;
      wide[2] += 1;
      return DenseStrides(wide);
    case Memory::kMirrored: break;
  }
  Dims stride = DenseStrides(dims);
  for (const size_t d : {3, 4, 5}) stride[d] = -stride[d];
  return stride;
}

}  // namespace

int64_t Array::Offset(const Dims& index) const {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += index[d] * view.stride[d];
  return offset;
}

void Array::Write(const Tensor& tensor) const {
  ForEach({}, dims, [&](const Dims& i) { Store(view.data, view.dtype, Offset(i), tensor.at(i)); });
}

Tensor Array::Read() const {
  Tensor tensor(dims);
  ForEach({}, dims, [&](const Dims& i) { tensor.at(i) = Load(view.data, view.dtype, Offset(i)); });
  return tensor;
}

bool Array::GapsIntact() const {
  std::vector<bool> used(static_cast<size_t>(bytes));
  const int64_t size = SizeOf(view.dtype);
  const auto base = static_cast<const char*>(view.data) - memory;
  ForEach({}, dims, [&](const Dims& i) {
    const auto begin = used.begin() + (base + Offset(i) * size);
    std::fill(begin, begin + size, true);
  });
  for (int64_t b = 0; b < bytes; ++b) {
    if (!used[static_cast<size_t>(b)] && memory[b] != kGap) return false;
  }
  return true;
}

Rig::~Rig() {
  for (const Stream stream : streams_) (void)device_.SynchronizeStream(stream).ok();
  for (const Event event : events_) device_.DestroyEvent(event);
  for (const Stream stream : streams_) device_.DestroyStream(stream);
  for (const Block& block : buffers_) device_.Free(block.memory, block.bytes);
  for (const Block& block : host_) device_.FreeHost(block.memory, block.bytes);
}

Result<Stream> Rig::NewStream(const char* name) {
  OOC_ASSIGN(Stream stream, device_.CreateStream(name));
  streams_.push_back(stream);
  return stream;
}

Result<Event> Rig::NewEvent() {
  OOC_ASSIGN(Event event, device_.CreateEvent(EventUse::kHost));
  events_.push_back(event);
  return event;
}

Result<void*> Rig::NewBuffer(int64_t bytes) {
  OOC_ASSIGN(void* buffer, device_.Allocate(bytes));
  buffers_.push_back({buffer, bytes});
  return buffer;
}

Result<Stream> Rig::MainStream() {
  if (main_ == nullptr) {
    OOC_ASSIGN(main_, NewStream("main"));
  }
  return main_;
}

Result<Array> Rig::NewArray(const Dims& dims, DType dtype, Memory memory) {
  constexpr int64_t margin = 64;  // bytes on both sides that nobody may touch
  Array array;
  array.dims = dims;
  array.view.dtype = dtype;
  array.view.stride = StridesOf(dims, memory);
  int64_t lowest = 0, highest = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t last = std::max<int64_t>(dims[d] - 1, 0) * array.view.stride[d];
    (last < 0 ? lowest : highest) += last;
  }
  array.bytes = (highest - lowest + 1) * SizeOf(dtype) + 2 * margin;
  OOC_ASSIGN(void* block, device_.AllocateHost(array.bytes));
  host_.push_back({block, array.bytes});
  std::memset(block, kGap, static_cast<size_t>(array.bytes));
  array.memory = static_cast<char*>(block);
  array.view.data = array.memory + margin - lowest * SizeOf(dtype);
  return array;
}

Transfer WholeTransfer(const Array& array, Operand operand, const TileLayout& layout, void* tile) {
  Transfer transfer;
  transfer.view = array.view;
  transfer.operand = operand;
  transfer.box = {{}, array.dims, {}, array.dims};
  transfer.tile_end = array.dims;
  transfer.tile = tile;
  transfer.layout = &layout;
  transfer.tag.operand = operand;
  return transfer;
}

Status Rig::Upload(const Tensor& tensor, Operand operand, const TileLayout& layout, void* tile) {
  OOC_ASSIGN(const Stream stream, MainStream());
  OOC_ASSIGN(const Array array, NewArray(tensor.dims, DType::kFloat64));
  array.Write(tensor);
  OOC_TRY(device_.Fetch(stream, WholeTransfer(array, operand, layout, tile)));
  return device_.SynchronizeStream(stream);
}

Result<Tensor> Rig::Download(Operand operand, const TileLayout& layout, void* tile) {
  OOC_ASSIGN(const Stream stream, MainStream());
  OOC_ASSIGN(const Array array, NewArray(layout.shape, DType::kFloat64));
  OOC_TRY(device_.Drain(stream, WholeTransfer(array, operand, layout, tile)));
  OOC_TRY(device_.SynchronizeStream(stream));
  return array.Read();
}

Result<Tensor> Rig::Read(Operand operand, const TileLayout& layout, void* tile) {
  if (layout.opaque || !device_.capabilities().shares_host_memory) {
    return Download(operand, layout, tile);
  }
  Tensor tensor(layout.shape);
  ForEach({}, layout.shape,
          [&](const Dims& i) { tensor.at(i) = Load(tile, layout.dtype, OffsetIn(layout, i)); });
  return tensor;
}

Result<void*> Rig::NewTile(const Tensor& tensor, Operand operand, const TileLayout& layout) {
  OOC_ASSIGN(void* tile, NewBuffer(layout.bytes));
  OOC_TRY(Upload(tensor, operand, layout, tile));
  return tile;
}

std::string Text(const Dims& dims) {
  std::string text = "(";
  for (size_t d = 0; d < dims.size(); ++d) {
    text += Format(d == 0 ? "%lld" : ", %lld", static_cast<long long>(dims[d]));
  }
  return text + ")";
}

std::string FirstDifference(const Tensor& seen, const Tensor& wanted, Equality equality) {
  if (seen.dims != wanted.dims) {
    return "extents " + Text(seen.dims) + " instead of " + Text(wanted.dims);
  }
  std::string difference;
  ForEach({}, wanted.dims, [&](const Dims& i) {
    const double a = seen.at(i), b = wanted.at(i);
    const bool same =
        a == b && (equality == Equality::kValues || std::signbit(a) == std::signbit(b));
    if (!difference.empty() || same || (std::isnan(a) && std::isnan(b))) return;
    difference = Format("%.17g instead of %.17g at %s", a, b, Text(i).c_str());
  });
  return difference;
}

}  // namespace oocdnn::testing
