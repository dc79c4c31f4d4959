// Guard bytes are read back with an ordinary Drain, so that this works on any device.
#include "device/wrap/guards.hpp"

#include <cstring>
#include <iterator>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

constexpr int kPoison = 0xff;
constexpr int kGuard = 0xa5;  // a small negative number as f32: a copy keeps its bits

}  // namespace

Guards::Guards(Device& device)
    : device_(device), guard_bytes_(RoundUp(64, device.capabilities().alignment)) {}

Guards::~Guards() {
  if (stream_ != nullptr) device_.DestroyStream(stream_);
  if (host_ != nullptr) device_.FreeHost(host_, guard_bytes_);
}

Status Guards::Prepare() {
  if (stream_ == nullptr) {
    OOC_ASSIGN(stream_, device_.CreateStream("guards"));
  }
  if (host_ == nullptr) {
    OOC_ASSIGN(host_, device_.AllocateHost(guard_bytes_));
  }
  return {};
}

Status Guards::FillAll(char* whole, int64_t bytes) {
  char* const inside = whole + guard_bytes_;
  OOC_TRY(device_.Fill(stream_, whole, guard_bytes_, kGuard));
  if (bytes > 0) OOC_TRY(device_.Fill(stream_, inside, bytes, kPoison));
  OOC_TRY(device_.Fill(stream_, inside + bytes, guard_bytes_, kGuard));
  return device_.SynchronizeStream(stream_);
}

Result<void*> Guards::Allocate(int64_t bytes) {
  OOC_TRY(Prepare());
  OOC_ASSIGN(void* whole, device_.Allocate(Add(bytes, overhead())));
  Status filled = FillAll(static_cast<char*>(whole), bytes);
  if (!filled.ok()) {
    device_.Free(whole, bytes + overhead());
    return std::move(filled).With("poisoning a new buffer");
  }
  void* const buffer = static_cast<char*>(whole) + guard_bytes_;
  live_[reinterpret_cast<uintptr_t>(buffer)] = bytes;
  return buffer;
}

Status Guards::CheckSide(const char* side, const void* guard, int64_t bytes,
                         std::vector<std::string>* reports) {
  // The guard as a tensor of one row of f32. A buffer of odd size has an unaligned far guard,
  // which starts at the next element; the device may not take less.
  const int64_t skip = (4 - reinterpret_cast<intptr_t>(guard) % 4) % 4;
  const int64_t floats = (guard_bytes_ - skip) / 4;
  TileLayout layout;
  layout.shape = {1, 1, 1, 1, 1, floats};
  layout.stride = DenseStrides(layout.shape);
  layout.bytes = floats * 4;
  Transfer transfer;
  transfer.view = {host_, DType::kFloat32, layout.stride};
  transfer.box = {{}, layout.shape, {}, layout.shape};
  transfer.tile_end = layout.shape;
  transfer.tile = const_cast<char*>(static_cast<const char*>(guard)) + skip;
  transfer.layout = &layout;
  OOC_TRY(device_.Drain(stream_, transfer));
  OOC_TRY(device_.SynchronizeStream(stream_));
  const auto* const seen = static_cast<const unsigned char*>(host_);
  for (int64_t i = 0; i < floats * 4; ++i) {
    if (seen[i] == kGuard) continue;
    reports->push_back(
        Format("a buffer of %lld bytes was written past its %s: guard byte %lld is "
               "0x%02x",
               static_cast<long long>(bytes), side, static_cast<long long>(skip) + i, seen[i]));
    return {};
  }
  return {};
}

void Guards::Free(void* buffer, int64_t bytes, std::vector<std::string>* reports) {
  if (buffer == nullptr) return;
  const auto found = live_.find(reinterpret_cast<uintptr_t>(buffer));
  if (found == live_.end()) {
    reports->push_back(
        Format("Free of %p, which is no live buffer: freed twice or never allocated", buffer));
    return;
  }
  if (found->second != bytes) {
    reports->push_back(Format("Free of a buffer with %lld bytes, but it was allocated with %lld",
                              static_cast<long long>(bytes),
                              static_cast<long long>(found->second)));
  }
  const int64_t allocated = found->second;
  live_.erase(found);
  char* const inside = static_cast<char*>(buffer);
  char* const whole = inside - guard_bytes_;
  Status looked = CheckSide("begin", whole, allocated, reports);
  if (looked.ok()) looked = CheckSide("end", inside + allocated, allocated, reports);
  if (!looked.ok()) reports->push_back("guards could not be read: " + looked.message());
  device_.Free(whole, allocated + overhead());
}

bool Guards::Straddles(uintptr_t begin, uintptr_t end) const {
  auto next = live_.upper_bound(begin);
  if (next != live_.end() && next->first < end) return true;
  if (next == live_.begin()) return false;
  --next;
  const uintptr_t buffer_end = next->first + static_cast<uintptr_t>(next->second);
  return begin < buffer_end && end > buffer_end;
}

bool Guards::Holds(uintptr_t address) const {
  const auto next = live_.upper_bound(address);
  if (next == live_.begin()) return false;
  const auto& [buffer, bytes] = *std::prev(next);
  return address - buffer < static_cast<uintptr_t>(bytes);
}

std::vector<int64_t> Guards::Live() const {
  std::vector<int64_t> bytes;
  bytes.reserve(live_.size());
  for (const auto& [address, size] : live_) bytes.push_back(size);
  return bytes;
}

}  // namespace oocdnn
