#include "planner/random_fill.hpp"

#include <algorithm>

#include "memory/block.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kNumbers = 1 << 18;  // made on the host

void Randomize(float* numbers, int64_t count) {
  uint32_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    numbers[i] = static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
  }
}

TileLayout LineOf(int64_t elements, DType dtype) {
  TileLayout layout;
  layout.dtype = dtype;
  layout.shape = {1, 1, 1, 1, 1, elements};
  layout.stride = DenseStrides(layout.shape);
  layout.bytes = elements * SizeOf(dtype);
  return layout;
}

// The first elements of the line, from the host.
Status FetchNumbers(Device& device, Stream stream, float* numbers, int64_t count, void* line,
                    const TileLayout& layout) {
  Transfer transfer;
  transfer.view = {numbers, DType::kFloat32, DenseStrides({1, 1, 1, 1, 1, count})};
  transfer.box.extent = transfer.tile_end = {1, 1, 1, 1, 1, count};
  transfer.box.valid_end = transfer.box.extent;
  transfer.tile = line;
  transfer.layout = &layout;
  return device.Fetch(stream, transfer);
}

// What the line has once more behind it, until it is full.
Status Repeat(Device& device, Stream stream, int64_t count, void* line, const TileLayout& layout) {
  const int64_t all = layout.shape[5];
  for (int64_t done = count; done < all; done = std::min(2 * done, all)) {
    TileMove move;
    move.from = move.to = line;
    move.to_begin[5] = done;
    move.extent = {1, 1, 1, 1, 1, std::min(done, all - done)};
    move.layout = &layout;
    OOC_TRY(device.Move(stream, move));
  }
  return {};
}

}  // namespace

Status FillRandomly(Device& device, Stream stream, void* buffer, int64_t bytes, DType dtype) {
  OOC_TRY(device.Fill(stream, buffer, bytes, 0));
  const int64_t elements = bytes / SizeOf(dtype), count = std::min(elements, kNumbers);
  if (device.capabilities().reads_host || count == 0) return device.SynchronizeStream(stream);
  const Block numbers = HostBlock(device, kNumbers * static_cast<int64_t>(sizeof(float)));
  if (numbers.get() == nullptr) return Error(Code::kOutOfMemory, "no pinned memory for numbers");
  auto* const floats = reinterpret_cast<float*>(numbers.get());
  Randomize(floats, count);
  const TileLayout line = LineOf(elements, dtype);
  Status status = FetchNumbers(device, stream, floats, count, buffer, line);
  if (status.ok()) status = Repeat(device, stream, count, buffer, line);
  const Status ended = device.SynchronizeStream(stream);  // in any case: the numbers go
  return status.ok() ? ended : status;
}

}  // namespace oocdnn
