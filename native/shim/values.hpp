// What legacy descriptors say, as values: ours hold them, the real library's are read into them.
#pragma once

#include <array>
#include <cstdint>

#include "abi/cudnn_legacy.h"
#include "geom/activation.h"

namespace oocdnn::shim {

using Axes = std::array<int64_t, CUDNN_DIM_MAX>;

struct TensorValue {
  cudnnDataType_t dtype = CUDNN_DATA_FLOAT;
  int rank = 0;
  Axes dims{}, stride{};

  [[nodiscard]] bool SameShape(const TensorValue& other) const {
    return rank == other.rank && dims == other.dims;
  }
};

// Dimensions K C/groups [T [R]] S whatever the strides.
struct FilterValue {
  cudnnDataType_t dtype = CUDNN_DATA_FLOAT;
  int rank = 0;
  Axes dims{}, stride{};
};

struct ConvolutionValue {
  int rank = 0;
  Axes pad{}, pad_after{}, stride{}, dilation{};
  cudnnConvolutionMode_t mode = CUDNN_CONVOLUTION;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  cudnnReorderType_t reorder = CUDNN_DEFAULT_REORDER;
  int groups = 1;
};

struct ActivationValue {
  cudnnActivationMode_t mode = CUDNN_ACTIVATION_RELU;
  cudnnNanPropagation_t nans = CUDNN_NOT_PROPAGATE_NAN;
  double coef = 0.0;
  double swish_beta = 1.0;
};

// The activation of a call, as the core has it.
struct CallActivation {
  Activation kind = Activation::kIdentity;
  double parameter = 0.0;
};
CallActivation ActivationOf(const ActivationValue& value);

// Dense strides: the last axis fastest, or (NHWC) the channels. What overflows becomes kSizeMax.
Axes DenseStride(cudnnTensorFormat_t format, int rank, const Axes& dims);

// Bytes of a dense tensor, and those from the first byte of a tensor with any strides to its last,
// whatever lies between. What overflows becomes kSizeMax.
int64_t DenseBytes(cudnnDataType_t dtype, int rank, const Axes& dims);
int64_t SpanBytes(const TensorValue& value);

// Bytes of one element, 0 for types that nothing here computes with.
int64_t SizeOf(cudnnDataType_t dtype);

}  // namespace oocdnn::shim
