// Rig: one convolution on a device, ready to be timed piece by piece.
#pragma once

#include <array>
#include <memory>

#include "device/device.hpp"

namespace oocdnn {

// Memory from a device, or none where it had none to give.
class Block {
 public:
  using Free = void (Device::*)(void*, int64_t);
  Block(Device& device, Result<void*> block, int64_t bytes, Free free)
      : device_(device), bytes_(bytes), free_(free) {
    if (block.ok()) block_ = block.value();
  }
  ~Block() {
    if (block_ != nullptr) (device_.*free_)(block_, bytes_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  [[nodiscard]] char* get() const { return static_cast<char*>(block_); }

 private:
  Device& device_;
  const int64_t bytes_;
  const Free free_;
  void* block_ = nullptr;
};

inline Block DeviceBlock(Device& device, int64_t bytes) {
  return {device, device.Allocate(bytes), bytes, &Device::Free};
}
inline Block HostBlock(Device& device, int64_t bytes) {
  return {device, device.AllocateHost(bytes), bytes, &Device::FreeHost};
}

// Host memory as a tensor without gaps, of which a tile may take less than the width.
struct Host {
  void* memory;
  int64_t width;
  bool channels_last;
};

// One convolution, prepared, with memory for its tiles and for those of a second one, all zeros.
class Rig {
 public:
  static Result<std::unique_ptr<Rig>> Make(Device& device, int engine, const Problem& problem);

  [[nodiscard]] double operations() const { return shape_.Operations(problem_.direction); }
  [[nodiscard]] double bytes(Operand operand) const {
    return static_cast<double>(problem_.BytesOf(operand));
  }

  Status Run(Stream stream, Span* span);
  // Of the whole of an operand.
  [[nodiscard]] Transfer TransferOf(Operand operand, const Host& host, Span* span) const;
  // Of a whole tile to that of the second set.
  [[nodiscard]] TileMove MoveOf(Operand operand, Span* span) const;

 private:
  Rig(Device& device, const Problem& problem, const Tiling& tiling, const ConvShape& shape,
      std::unique_ptr<Executable> executable, int64_t bytes);

  Device& device_;
  const Problem problem_;
  const Tiling tiling_;
  const ConvShape shape_;
  const std::unique_ptr<Executable> executable_;
  const Block block_;
  std::array<std::array<void*, kOperands>, 2> tile_{};
  void* workspace_ = nullptr;
};

}  // namespace oocdnn
