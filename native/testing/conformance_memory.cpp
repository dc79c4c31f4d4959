// Buffers: alignment, that they are apart, and that running out is a result.
#include <algorithm>
#include <cstring>

#include "testing/conformance_rig.hpp"

namespace oocdnn::testing {
namespace {

Status BuffersAreAligned(Device& device) {
  Rig rig(device);
  const int64_t alignment = device.capabilities().alignment;
  OOC_EXPECT(alignment >= 16, "the alignment is only %lld", static_cast<long long>(alignment));
  for (const int64_t bytes : {1, 63, 64, 65, 4095, 1000003}) {
    OOC_ASSIGN(void* buffer, rig.NewBuffer(bytes));
    OOC_EXPECT(buffer != nullptr, "a buffer of %lld bytes is null", static_cast<long long>(bytes));
    OOC_EXPECT(reinterpret_cast<intptr_t>(buffer) % alignment == 0,
               "a buffer of %lld bytes lies at %p, but the alignment is %lld",
               static_cast<long long>(bytes), buffer, static_cast<long long>(alignment));
  }
  return {};
}

// Each buffer keeps what was written to it while its neighbours are written.
Status BuffersAreApart(Device& device) {
  Rig rig(device);
  constexpr int kBuffers = 12;
  const TileLayout layout = PlainLayout(DType::kFloat32, {1, 1, 1, 1, 3, 17});
  std::vector<void*> tiles;
  for (int b = 0; b < kBuffers; ++b) {
    OOC_ASSIGN(void* tile, rig.NewTile(Tensor(layout.shape, b), Operand::kX, layout));
    tiles.push_back(tile);
  }
  for (int b = 0; b < kBuffers; ++b) {
    OOC_ASSIGN(const Tensor seen, rig.Download(Operand::kX, layout, tiles[b]));
    const std::string difference = FirstDifference(seen, Tensor(layout.shape, b));
    OOC_EXPECT(difference.empty(), "buffer %d holds %s", b, difference.c_str());
  }
  return {};
}

Status TooMuchIsAResult(Device& device) {
  constexpr int64_t kBytes = int64_t{1} << 50;
  Result<void*> buffer = device.Allocate(kBytes);
  if (buffer.ok()) device.Free(buffer.value(), kBytes);
  OOC_EXPECT(!buffer.ok(), "%lld bytes could be allocated", static_cast<long long>(kBytes));
  OOC_EXPECT(buffer.status().code() == Code::kOutOfMemory, "the code is \"%s\"",
             CodeName(buffer.status().code()));
  OOC_EXPECT(!buffer.status().message().empty(), "the error has no text");
  Rig rig(device);
  return rig.NewBuffer(4096).status().With("after a request that was too large");
}

Status FreedMemoryComesBack(Device& device) {
  constexpr int64_t kBytes = int64_t{16} << 20;
  OOC_ASSIGN(const int64_t before, device.FreeBytes());
  for (int round = 0; round < 100; ++round) {
    OOC_ASSIGN(void* buffer, device.Allocate(kBytes));
    device.Free(buffer, kBytes);
  }
  OOC_ASSIGN(const int64_t after, device.FreeBytes());
  OOC_EXPECT(after >= before - 2 * kBytes, "%lld bytes were free, and %lld are left",
             static_cast<long long>(before), static_cast<long long>(after));
  return {};
}

Status FreeBytesCanBeAllocated(Device& device) {
  OOC_ASSIGN(const int64_t free, device.FreeBytes());
  OOC_EXPECT(free > 0, "%lld bytes are free", static_cast<long long>(free));
  Rig rig(device);
  return rig.NewBuffer(std::min(free, int64_t{64} << 20)).status();
}

Status HostMemoryIsUsable(Device& device) {
  constexpr int64_t kBytes = 1 << 20;
  OOC_ASSIGN(void* memory, device.AllocateHost(kBytes));
  std::memset(memory, 0x11, kBytes);
  const bool kept = static_cast<const char*>(memory)[kBytes - 1] == 0x11;
  device.FreeHost(memory, kBytes);
  OOC_EXPECT(kept, "host memory does not keep what is written to it");
  return {};
}

constexpr Case kCases[] = {
    {"buffers_are_aligned", BuffersAreAligned},
    {"buffers_are_apart", BuffersAreApart},
    {"too_much_is_a_result", TooMuchIsAResult},
    {"freed_memory_comes_back", FreedMemoryComesBack},
    {"free_bytes_can_be_allocated", FreeBytesCanBeAllocated},
    {"host_memory_is_usable", HostMemoryIsUsable},
};

}  // namespace

std::span<const Case> MemoryCases() { return kCases; }

}  // namespace oocdnn::testing
