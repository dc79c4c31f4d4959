// Rows along W of plain and blocked tiles, and the bits that are saved along them.
#pragma once

#include <algorithm>
#include <cstring>

#include "device/cpu/convert.hpp"
#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

// Where a row along W begins in a tile; channels are merged.
inline int64_t RowAt(const TileLayout& layout, int64_t n, int64_t channel, int64_t d, int64_t h) {
  const int64_t block = layout.channel_block, per_group = layout.shape[2];
  const int64_t at = n * layout.stride[0] + d * layout.stride[3] + h * layout.stride[4];
  if (block > 1) return at + channel / block * layout.stride[2] + channel % block;
  return at + channel / per_group * layout.stride[1] + channel % per_group * layout.stride[2];
}

// Calls fn(n, channel, d, h) for all rows of such a tile, in parallel; channels are innermost, as
// rows of neighbouring ones share cache lines in blocked tiles.
template <class Fn>
void ForRows(const Dims& shape, Parallel& parallel, const Fn& fn) {
  constexpr int64_t kPiece = 8192;  // elements worth handing out
  const int64_t channels = shape[1] * shape[2];
  const int64_t rows = shape[0] * shape[3] * shape[4] * channels;
  const int64_t grain = std::max<int64_t>(kPiece / std::max<int64_t>(shape[5], 1), 1);
  parallel.For(rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row / channels;
      const int64_t h = rest % shape[4];
      rest /= shape[4];
      fn(rest / shape[3], row % channels, rest % shape[3], h);
    }
  });
}

// Writes values of a few bits one behind the other, see Saving.
class BitRow {
 public:
  BitRow(uint8_t* to, int bits) : to_(to), bits_(bits) {}

  void Put(uint32_t value) {
    if (to_ == nullptr) return;
    waiting_ |= static_cast<uint64_t>(value) << count_;
    for (count_ += bits_; count_ >= 8; count_ -= 8) Flush();
  }
  void End() {
    if (to_ != nullptr && count_ > 0) Flush();
  }

 private:
  void Flush() {
    *to_++ = static_cast<uint8_t>(waiting_);
    waiting_ >>= 8;
  }

  uint8_t* to_;
  int bits_, count_ = 0;
  uint64_t waiting_ = 0;
};

// Writes elements with slopes one behind the other, see Saving.
class SlopeRow {
 public:
  SlopeRow(uint8_t* to, const Saving& saving)
      : to_(to), slope_(saving.slope), code_bytes_(saving.code_bits() / 8) {}

  template <class T>
  void Put(T slope, uint32_t code) {
    WithType(slope_, [&](auto stored) {
      stored = Convert<decltype(stored)>(slope);
      std::memcpy(to_, &stored, sizeof stored);
      to_ += sizeof stored;
    });
    for (int byte = 0; byte < code_bytes_; ++byte) *to_++ = static_cast<uint8_t>(code >> 8 * byte);
  }

 private:
  uint8_t* to_;
  DType slope_;
  int code_bytes_;
};

// The slope that SlopeRow put at `element`, as its type; and the code behind it.
template <class Slope>
Slope SlopeAt(const uint8_t* element) {
  Slope slope;
  std::memcpy(&slope, element, sizeof slope);
  return slope;
}
inline uint32_t CodeAt(const uint8_t* element, const Saving& saving) {
  const int64_t first = SizeOf(saving.slope), end = saving.bits / 8;
  uint32_t code = 0;
  for (int64_t byte = first; byte < end; ++byte) {
    code |= uint32_t{element[byte]} << 8 * (byte - first);
  }
  return code;
}

// The value that BitRow put there; no byte behind it is read.
inline uint32_t BitsAt(const uint8_t* row, int64_t element, int bits) {
  const int64_t first = element * bits, end = first + bits;
  uint32_t value = 0;
  for (int64_t byte = first / 8; byte * 8 < end; ++byte) {
    const int64_t shift = byte * 8 - first;
    value |= shift >= 0 ? uint32_t{row[byte]} << shift : uint32_t{row[byte]} >> -shift;
  }
  return value & ((uint32_t{1} << bits) - 1);
}

}  // namespace oocdnn::cpu
