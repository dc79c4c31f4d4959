// Plain loops: nothing here is meant to be fast.
#include "testing/tensors.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/checked.hpp"

namespace oocdnn::testing {

int64_t ElementsOf(const Dims& dims) {
  int64_t elements = 1;
  for (const int64_t extent : dims) elements = Mul(elements, std::max<int64_t>(extent, 0));
  return elements;
}

Tensor::Tensor(const Dims& extents, double value)
    : dims(extents), values(static_cast<size_t>(ElementsOf(extents)), value) {}

size_t Tensor::Offset(const Dims& index) const {
  int64_t offset = 0;
  for (size_t d = 0; d < dims.size(); ++d) offset = offset * dims[d] + index[d];
  return static_cast<size_t>(offset);
}

double Load(const void* data, DType dtype, int64_t offset) {
  const char* const at = static_cast<const char*>(data) + offset * SizeOf(dtype);
  const auto read = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (dtype) {
    case DType::kFloat32: return static_cast<double>(read(float{}));
    case DType::kFloat64: return read(double{});
    case DType::kFloat16: return static_cast<double>(ToFloat(read(Float16{})));
    case DType::kBFloat16: return static_cast<double>(ToFloat(read(BFloat16{})));
    case DType::kByte: return static_cast<double>(read(uint8_t{}));
  }
  return 0.0;
}

void Store(void* data, DType dtype, int64_t offset, double value) {
  char* const at = static_cast<char*>(data) + offset * SizeOf(dtype);
  const auto write = [at](auto element) { std::memcpy(at, &element, sizeof element); };
  switch (dtype) {
    case DType::kFloat32: return write(static_cast<float>(value));
    case DType::kFloat64: return write(value);
    case DType::kFloat16: return write(ToFloat16(static_cast<float>(value)));
    case DType::kBFloat16: return write(ToBFloat16(static_cast<float>(value)));
    case DType::kByte: return write(static_cast<uint8_t>(value));
  }
}

uint32_t ByteOf(DType dtype, double value, int64_t byte) {
  std::array<uint8_t, sizeof(double)> bytes{};
  Store(bytes.data(), dtype, 0, value);
  return bytes[static_cast<size_t>(byte)];
}

double Rounded(DType dtype, double value) {
  double element = 0.0;
  Store(&element, dtype, 0, value);
  return Load(&element, dtype, 0);
}

int64_t OffsetIn(const TileLayout& layout, const Dims& index) {
  int64_t offset = index[0] * layout.stride[0];
  for (const size_t d : {3, 4, 5}) offset += index[d] * layout.stride[d];
  if (layout.channel_block == 1) {
    return offset + index[1] * layout.stride[1] + index[2] * layout.stride[2];
  }
  const int64_t channel = index[1] * layout.shape[2] + index[2];
  return offset + (channel / layout.channel_block) * layout.stride[2] +
         channel % layout.channel_block;
}

TileLayout PlainLayout(DType dtype, const Dims& dims, bool channels_last) {
  TileLayout layout;
  layout.dtype = dtype;
  layout.shape = dims;
  layout.stride = channels_last ? ChannelsLastStrides(dims) : DenseStrides(dims);
  layout.bytes = ElementsOf(dims) * SizeOf(dtype);
  return layout;
}

TileLayout BlockedLayout(DType dtype, const Dims& dims, int64_t block) {
  const int64_t blocks = CeilDiv(dims[1] * dims[2], block);
  TileLayout layout;
  layout.dtype = dtype;
  layout.shape = dims;
  layout.channel_block = block;
  layout.stride[5] = block;
  layout.stride[4] = dims[5] * layout.stride[5];
  layout.stride[3] = dims[4] * layout.stride[4];
  layout.stride[2] = dims[3] * layout.stride[3];
  layout.stride[0] = blocks * layout.stride[2];
  layout.bytes = dims[0] * layout.stride[0] * SizeOf(dtype);
  return layout;
}

uint64_t Random::Next() {
  state_ ^= state_ << 13;
  state_ ^= state_ >> 7;
  state_ ^= state_ << 17;
  return state_ * 0x2545f4914f6cdd1du;
}

int64_t Random::Between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>((Next() >> 11) % static_cast<uint64_t>(high - low + 1));
}

double Random::Real() { return static_cast<double>(Next() >> 40) * 0x1p-23 - 1.0; }

Tensor Integers(const Dims& dims, Random& random) {
  Tensor tensor(dims);
  for (double& value : tensor.values) value = static_cast<double>(random.Between(-3, 3));
  return tensor;
}

Tensor Reals(const Dims& dims, DType dtype, Random& random) {
  Tensor tensor(dims);
  for (double& value : tensor.values) value = Rounded(dtype, random.Real());
  return tensor;
}

}  // namespace oocdnn::testing
