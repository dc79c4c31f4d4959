// The descriptors and handles that clients hold where there is no cuDNN.
#pragma once

#include <algorithm>
#include <climits>
#include <new>

#include "base/checked.hpp"
#include "shim/answer.hpp"
#include "shim/convolve.hpp"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  oocdnn::shim::TensorValue value;
};
struct cudnnFilterStruct {
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  oocdnn::shim::FilterValue value;
};
struct cudnnConvolutionStruct {
  oocdnn::shim::ConvolutionValue value;
};
struct cudnnActivationStruct {
  oocdnn::shim::ActivationValue value;
};
struct cudnnOpTensorStruct {
  cudnnOpTensorOp_t op = CUDNN_OP_TENSOR_ADD;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnNanPropagation_t nans = CUDNN_NOT_PROPAGATE_NAN;
};
// `rank` spatial axes.
struct cudnnPoolingStruct {
  cudnnPoolingMode_t mode = CUDNN_POOLING_MAX;
  cudnnNanPropagation_t nans = CUDNN_NOT_PROPAGATE_NAN;
  int rank = 0;
  oocdnn::shim::Axes window{}, pad{}, stride{};
};

namespace oocdnn::shim {

template <class T>
cudnnStatus_t Create(T** place) {
  OOC_NEED(place != nullptr, "the place for the descriptor is missing (null)");
  *place = new (std::nothrow) T;
  if (*place != nullptr) return CUDNN_STATUS_SUCCESS;
  return Refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory for a descriptor");
}

// As the real library, it takes null.
template <class T>
cudnnStatus_t Destroy(T* descriptor) {
  delete descriptor;
  return CUDNN_STATUS_SUCCESS;
}

// NOT_SUPPORTED for cuDNN's other element types, BAD_PARAM for what is none.
inline cudnnStatus_t CheckType(cudnnDataType_t dtype) {
  if (SizeOf(dtype) != 0) return CUDNN_STATUS_SUCCESS;
  const bool known = dtype >= CUDNN_DATA_FLOAT && dtype <= CUDNN_DATA_FAST_FLOAT_FOR_FP8;
  return Refuse(known ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_BAD_PARAM,
                "element type %d: without a GPU there are float, double, half and bfloat16", dtype);
}

// NOT_SUPPORTED where the bytes of a tensor cannot be counted.
inline cudnnStatus_t CheckBytes(int64_t bytes) {
  if (bytes < kSizeMax) return CUDNN_STATUS_SUCCESS;
  return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "a tensor of 2^63 bytes or more");
}

// Copies an axis array of a client's, or to it: NOT_SUPPORTED, and nothing is copied, where a
// number does not fit the client's int.
inline Axes AxesOf(int rank, const int* from) {
  Axes axes{};
  std::copy(from, from + rank, axes.begin());
  return axes;
}
inline cudnnStatus_t Give(const Axes& from, int rank, int requested, int* to) {
  if (to == nullptr) return CUDNN_STATUS_SUCCESS;
  const int count = std::min(rank, requested);
  for (int i = 0; i < count; ++i) {
    if (from[i] >= INT_MIN && from[i] <= INT_MAX) continue;
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "%lld on axis %d does not fit an int",
                  static_cast<long long>(from[i]), i);
  }
  for (int i = 0; i < count; ++i) to[i] = static_cast<int>(from[i]);
  return CUDNN_STATUS_SUCCESS;
}
template <class T>
void Give(T value, T* to) {
  if (to != nullptr) *to = value;
}

// The first `rank` extents of the convolution's output.
cudnnStatus_t OutputExtents(const ConvolutionValue& value, const TensorValue& x,
                            const FilterValue& w, int rank, int* dims);

// What every computing function begins with: the handle, the factors, and a tensor with its
// pointer.
inline cudnnStatus_t CheckCall(cudnnHandle_t handle, const void* alpha, const void* beta) {
  OOC_NEED(handle != nullptr, "the handle is null; cudnnCreate makes one");
  OOC_NEED(alpha != nullptr && beta != nullptr, "alpha or beta is null");
  return CUDNN_STATUS_SUCCESS;
}

inline cudnnStatus_t TakeTensor(const char* name, cudnnTensorDescriptor_t descriptor,
                                const void* data, TensorArgument* to) {
  OOC_NEED(descriptor != nullptr, "the descriptor of %s is null", name);
  OOC_NEED(descriptor->value.rank > 0, "the descriptor of %s is not set", name);
  OOC_CUDNN_TRY(CheckBytes(SpanBytes(descriptor->value)));
  OOC_NEED(data != nullptr, "the data of %s is missing (null)", name);
  *to = {descriptor->value, const_cast<void*>(data)};
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace oocdnn::shim
