#include "shim/values.hpp"

#include "base/checked.hpp"

namespace oocdnn::shim {

CallActivation ActivationOf(const ActivationValue& value) {
  switch (value.mode) {
    case CUDNN_ACTIVATION_SIGMOID: return {Activation::kSigmoid};
    case CUDNN_ACTIVATION_RELU: return {Activation::kRelu};
    case CUDNN_ACTIVATION_TANH: return {Activation::kTanh};
    case CUDNN_ACTIVATION_CLIPPED_RELU: return {Activation::kClippedRelu, value.coef};
    case CUDNN_ACTIVATION_ELU: return {Activation::kElu, value.coef};
    case CUDNN_ACTIVATION_IDENTITY: return {Activation::kIdentity};
    case CUDNN_ACTIVATION_SWISH: return {Activation::kSwish, value.swish_beta};
  }
  return {static_cast<Activation>(-1)};  // which the core refuses
}

Axes DenseStride(cudnnTensorFormat_t format, int rank, const Axes& dims) {
  Axes stride{};
  int64_t step = 1;
  const bool channels_last = format == CUDNN_TENSOR_NHWC && rank > 1;
  if (channels_last) {
    stride[1] = 1;
    step = dims[1];
  }
  for (int axis = rank - 1; axis >= 0; --axis) {
    if (channels_last && axis == 1) continue;
    stride[axis] = step;
    step = Mul(step, dims[axis]);
  }
  return stride;
}

int64_t DenseBytes(cudnnDataType_t dtype, int rank, const Axes& dims) {
  int64_t bytes = rank > 0 ? SizeOf(dtype) : 0;
  for (int i = 0; i < rank; ++i) bytes = Mul(bytes, dims[i]);
  return bytes;
}

int64_t SpanBytes(const TensorValue& value) {
  int64_t elements = value.rank > 0 ? 1 : 0;
  for (int i = 0; i < value.rank; ++i) {
    const int64_t step = value.stride[i] < 0 ? Mul(value.stride[i], -1) : value.stride[i];
    elements = Add(elements, Mul(value.dims[i] - 1, step));
  }
  return Mul(elements, SizeOf(value.dtype));
}

int64_t SizeOf(cudnnDataType_t dtype) {
  switch (dtype) {
    case CUDNN_DATA_FLOAT: return 4;
    case CUDNN_DATA_DOUBLE: return 8;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16: return 2;
    default: return 0;
  }
}

}  // namespace oocdnn::shim
