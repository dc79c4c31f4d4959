// Tensors element by element, for the operations beside convolutions that the CPU serves: plain
// loops on the calling thread, in double, rounded once.
#pragma once

#include <array>
#include <bit>
#include <cmath>

#include "base/dtype.hpp"
#include "shim/convolve.hpp"

namespace oocdnn::shim {

inline double Load(const TensorArgument& tensor, int64_t offset) {
  switch (tensor.value.dtype) {
    case CUDNN_DATA_DOUBLE: return static_cast<const double*>(tensor.data)[offset];
    case CUDNN_DATA_HALF:
      return static_cast<double>(ToFloat(static_cast<const Float16*>(tensor.data)[offset]));
    case CUDNN_DATA_BFLOAT16:
      return static_cast<double>(ToFloat(static_cast<const BFloat16*>(tensor.data)[offset]));
    default: return static_cast<double>(static_cast<const float*>(tensor.data)[offset]);
  }
}

inline void Store(const TensorArgument& tensor, int64_t offset, double value) {
  switch (tensor.value.dtype) {
    case CUDNN_DATA_DOUBLE: static_cast<double*>(tensor.data)[offset] = value; return;
    case CUDNN_DATA_HALF:
      static_cast<Float16*>(tensor.data)[offset] = ToFloat16(static_cast<float>(value));
      return;
    case CUDNN_DATA_BFLOAT16:
      static_cast<BFloat16*>(tensor.data)[offset] = ToBFloat16(static_cast<float>(value));
      return;
    default: static_cast<float*>(tensor.data)[offset] = static_cast<float>(value);
  }
}

// out = alpha * value + beta * out; what is there is read only where beta asks for it.
struct Blend {
  double alpha = 1.0, beta = 0.0;
  void operator()(const TensorArgument& out, int64_t offset, double value) const {
    const double old = beta != 0.0 ? beta * Load(out, offset) : 0.0;
    Store(out, offset, alpha * value + old);
  }
};

// Calls visit(offsets, index) for every index within `dims`, last axis fastest; `offsets` are those
// of tensors with these strides.
template <size_t kTensors, class Visit>
void Walk(int rank, const Axes& dims, const std::array<Axes, kTensors>& strides,
          const Visit& visit) {
  Axes index{};
  std::array<int64_t, kTensors> offsets{};
  for (;;) {
    visit(offsets, index);
    int axis = rank - 1;
    for (; axis >= 0; --axis) {
      for (size_t t = 0; t < kTensors; ++t) offsets[t] += strides[t][axis];
      if (++index[axis] < dims[axis]) break;
      for (size_t t = 0; t < kTensors; ++t) offsets[t] -= dims[axis] * strides[t][axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

// The strides of a tensor whose axes of extent 1 stand for every index.
inline Axes Broadcast(const TensorValue& value) {
  Axes stride = value.stride;
  for (int i = 0; i < value.rank; ++i) {
    if (value.dims[i] == 1) stride[i] = 0;
  }
  return stride;
}

inline bool BroadcastsTo(const TensorValue& from, const TensorValue& to) {
  bool fits = from.rank == to.rank;
  for (int i = 0; fits && i < from.rank; ++i) {
    fits = from.dims[i] == to.dims[i] || from.dims[i] == 1;
  }
  return fits;
}

}  // namespace oocdnn::shim
