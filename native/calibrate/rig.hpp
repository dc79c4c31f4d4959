// Rig: one convolution on a device, ready to be timed piece by piece.
#pragma once

#include <array>
#include <memory>

#include "device/device.hpp"
#include "memory/block.hpp"

namespace oocdnn {

// Memory of the caller's as a tensor, of which a tile may take less than the width. It has no gaps,
// or begins each plane so many bytes after the one before (channels first only).
struct Host {
  void* memory;
  int64_t width;
  bool channels_last;
  int64_t plane_pitch = 0;
};

// A convolution with taps x taps filters that keeps the size, of contiguous tensors: n, groups,
// channels and extents of `shape`.
Problem SampleOf(ConvShape shape, DType dtype, Math math, Direction direction, int64_t taps = 3);

// The same x, in groups of one channel for an engine that takes no others.
ConvShape ShapeFor(const EngineInfo& engine, ConvShape shape);

// What is timed. Of arithmetic, of tiles in the problem's type or of sums in the accumulator's:
// engines that a device tries out are tried out. Of copies: there is a second tile of x.
enum class Timed : uint8_t { kArithmetic, kSums, kCopies };

// One convolution, prepared, with memory for its tiles, of numbers (see FillRandomly).
class Rig {
 public:
  // Takes at most `limit` bytes of device memory, kOutOfMemory where they do not suffice.
  static Result<std::unique_ptr<Rig>> Make(Device& device, int engine, const Problem& problem,
                                           int64_t limit, Timed timed);

  [[nodiscard]] double operations() const { return shape_.Operations(problem_.direction); }
  [[nodiscard]] double bytes(Operand operand) const {
    return static_cast<double>(problem_.BytesOf(operand));
  }

  // That the engine took to be prepared.
  [[nodiscard]] double prepare_seconds() const { return prepare_seconds_; }

  Status Run(Stream stream, Span* span);
  [[nodiscard]] void* tile(Operand operand) const { return tile_[Index(operand)]; }
  [[nodiscard]] void* second_x() const { return second_x_; }
  [[nodiscard]] const TileLayout& layout(Operand operand) const {
    return executable_->layout(operand);
  }
  // Of the whole of an operand; what is read and what is written have a bounce memory each.
  [[nodiscard]] Transfer TransferOf(Operand operand, const Host& host, Span* span) const;
  // The second tile of x as memory of the device's own.
  [[nodiscard]] Host OnDevice(bool channels_last) const {
    return {second_x_, problem_.DimsOf(Operand::kX)[5], channels_last};
  }
  // Of all of x to its second tile.
  [[nodiscard]] TileMove MoveOfX(Span* span) const;

 private:
  Rig(Device& device, const Problem& problem, const Tiling& tiling, const ConvShape& shape,
      std::unique_ptr<Executable> executable, int64_t bytes);

  Device& device_;
  const Problem problem_;
  const Tiling tiling_;
  const ConvShape shape_;
  const std::unique_ptr<Executable> executable_;
  const Block block_;
  std::array<void*, kOperands> tile_{};
  void *second_x_ = nullptr, *workspace_ = nullptr;
  double prepare_seconds_ = 0.0;
  Bounce bounce_in_, bounce_out_;
};

}  // namespace oocdnn
