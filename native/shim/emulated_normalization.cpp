// Softmax and batch normalization where there is no GPU.
#include <limits>

#include "shim/descriptors.hpp"
#include "shim/elements.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

using Tensor = cudnnTensorDescriptor_t;

cudnnStatus_t CheckSoftmax(cudnnSoftmaxAlgorithm_t algorithm, cudnnSoftmaxMode_t mode) {
  OOC_NEED(algorithm >= CUDNN_SOFTMAX_FAST && algorithm <= CUDNN_SOFTMAX_LOG,
           "there is no softmax %d", algorithm);
  OOC_NEED(mode == CUDNN_SOFTMAX_MODE_INSTANCE || mode == CUDNN_SOFTMAX_MODE_CHANNEL,
           "there is no mode %d", mode);
  return CUDNN_STATUS_SUCCESS;
}

// One softmax is over the channels of a place, or over all of a batch entry; `outer` are the
// extents over which it is repeated, `inner` those of one.
struct Split {
  Axes outer{}, inner{};
};

Split SplitOf(const TensorValue& x, cudnnSoftmaxMode_t mode) {
  Split split;
  for (int i = 0; i < x.rank; ++i) {
    const bool inside = i == 1 || (i > 1 && mode == CUDNN_SOFTMAX_MODE_INSTANCE);
    split.inner[i] = inside ? x.dims[i] : 1;
    split.outer[i] = inside ? 1 : x.dims[i];
  }
  return split;
}

cudnnStatus_t SoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm,
                             cudnnSoftmaxMode_t mode, const void* alpha, Tensor x_desc,
                             const void* x_data, const void* beta, Tensor y_desc, void* y_data) {
  return Serve([&] {
    TensorArgument x, y;
    OOC_CUDNN_TRY(CheckCall(handle, alpha, beta));
    OOC_CUDNN_TRY(CheckSoftmax(algorithm, mode));
    OOC_CUDNN_TRY(TakeTensor("x", x_desc, x_data, &x));
    OOC_CUDNN_TRY(TakeTensor("y", y_desc, y_data, &y));
    OOC_NEED(x.value.SameShape(y.value), "x and y differ in their extents");
    const Split split = SplitOf(x.value, mode);
    const Blend blend{ScalarOf(alpha, y.value.dtype), ScalarOf(beta, y.value.dtype)};
    const std::array<Axes, 2> strides{x.value.stride, y.value.stride};
    const int rank = x.value.rank;
    Walk<2>(rank, split.outer, strides, [&](const auto& at, const Axes&) {
      double top = -std::numeric_limits<double>::infinity(), sum = 0.0;
      Walk<2>(rank, split.inner, strides,
              [&](const auto& in, const Axes&) { top = std::fmax(top, Load(x, at[0] + in[0])); });
      Walk<2>(rank, split.inner, strides,
              [&](const auto& in, const Axes&) { sum += std::exp(Load(x, at[0] + in[0]) - top); });
      Walk<2>(rank, split.inner, strides, [&](const auto& in, const Axes&) {
        const double v = Load(x, at[0] + in[0]) - top;
        const double out = algorithm == CUDNN_SOFTMAX_LOG ? v - std::log(sum) : std::exp(v) / sum;
        blend(y, at[1] + in[1], out);
      });
    });
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t SoftmaxBackward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algorithm,
                              cudnnSoftmaxMode_t mode, const void* alpha, Tensor y_desc,
                              const void* y_data, Tensor dy_desc, const void* dy_data,
                              const void* beta, Tensor dx_desc, void* dx_data) {
  return Serve([&] {
    TensorArgument y, dy, dx;
    OOC_CUDNN_TRY(CheckCall(handle, alpha, beta));
    OOC_CUDNN_TRY(CheckSoftmax(algorithm, mode));
    OOC_CUDNN_TRY(TakeTensor("y", y_desc, y_data, &y));
    OOC_CUDNN_TRY(TakeTensor("dy", dy_desc, dy_data, &dy));
    OOC_CUDNN_TRY(TakeTensor("dx", dx_desc, dx_data, &dx));
    OOC_NEED(y.value.SameShape(dx.value) && dy.value.SameShape(dx.value),
             "y, dy and dx differ in their extents");
    const Split split = SplitOf(y.value, mode);
    const bool log = algorithm == CUDNN_SOFTMAX_LOG;
    const Blend blend{ScalarOf(alpha, dx.value.dtype), ScalarOf(beta, dx.value.dtype)};
    const std::array<Axes, 3> strides{y.value.stride, dy.value.stride, dx.value.stride};
    const int rank = y.value.rank;
    Walk<3>(rank, split.outer, strides, [&](const auto& at, const Axes&) {
      double sum = 0.0;
      Walk<3>(rank, split.inner, strides, [&](const auto& in, const Axes&) {
        const double gradient = Load(dy, at[1] + in[1]);
        sum += log ? gradient : gradient * Load(y, at[0] + in[0]);
      });
      Walk<3>(rank, split.inner, strides, [&](const auto& in, const Axes&) {
        const double v = Load(y, at[0] + in[0]), gradient = Load(dy, at[1] + in[1]);
        blend(dx, at[2] + in[2], log ? gradient - std::exp(v) * sum : v * (gradient - sum));
      });
    });
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t CheckMode(cudnnBatchNormMode_t mode) {
  OOC_NEED(mode >= CUDNN_BATCHNORM_PER_ACTIVATION && mode <= CUDNN_BATCHNORM_SPATIAL_PERSISTENT,
           "there is no batch normalization %d", mode);
  return CUDNN_STATUS_SUCCESS;
}

// The tensor of one number per channel or, per activation, per element of a batch entry.
TensorValue ParameterOf(const TensorValue& x, cudnnBatchNormMode_t mode) {
  TensorValue value = x;
  value.dims[0] = 1;
  for (int i = 2; i < x.rank && mode != CUDNN_BATCHNORM_PER_ACTIVATION; ++i) value.dims[i] = 1;
  value.stride = DenseStride(CUDNN_TENSOR_NCHW, value.rank, value.dims);
  if (value.dtype != CUDNN_DATA_DOUBLE) value.dtype = CUDNN_DATA_FLOAT;
  return value;
}

cudnnStatus_t DeriveDescriptor(Tensor derived, Tensor x, cudnnBatchNormMode_t mode) {
  OOC_NEED(derived != nullptr && x != nullptr, "a descriptor is null");
  OOC_CUDNN_TRY(CheckMode(mode));
  derived->value = ParameterOf(x->value, mode);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Inference(cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha,
                        const void* beta, Tensor x_desc, const void* x_data, Tensor y_desc,
                        void* y_data, Tensor parameters, const void* scale_data,
                        const void* bias_data, const void* mean_data, const void* variance_data,
                        double epsilon) {
  return Serve([&] {
    TensorArgument x, y, scale, bias, mean, variance;
    OOC_CUDNN_TRY(CheckCall(handle, alpha, beta));
    OOC_CUDNN_TRY(CheckMode(mode));
    OOC_NEED(epsilon >= 0.0, "epsilon is negative");
    OOC_CUDNN_TRY(TakeTensor("x", x_desc, x_data, &x));
    OOC_CUDNN_TRY(TakeTensor("y", y_desc, y_data, &y));
    OOC_CUDNN_TRY(TakeTensor("the scale", parameters, scale_data, &scale));
    OOC_CUDNN_TRY(TakeTensor("the bias", parameters, bias_data, &bias));
    OOC_CUDNN_TRY(TakeTensor("the mean", parameters, mean_data, &mean));
    OOC_CUDNN_TRY(TakeTensor("the variance", parameters, variance_data, &variance));
    OOC_NEED(x.value.SameShape(y.value), "x and y differ in their extents");
    OOC_NEED(scale.value.SameShape(ParameterOf(x.value, mode)),
             "the parameters do not have the extents that this mode has");
    const Blend blend{ScalarOf(alpha, y.value.dtype), ScalarOf(beta, y.value.dtype)};
    Walk<3>(y.value.rank, y.value.dims, {x.value.stride, y.value.stride, Broadcast(scale.value)},
            [&](const auto& at, const Axes&) {
              const double centred = Load(x, at[0]) - Load(mean, at[2]);
              const double spread = std::sqrt(Load(variance, at[2]) + epsilon);
              blend(y, at[1], Load(bias, at[2]) + Load(scale, at[2]) * centred / spread);
            });
    return CUDNN_STATUS_SUCCESS;
  });
}

}  // namespace

void ServeNormalization(Served* served) {
  OOC_SERVE(served, cudnnSoftmaxForward, SoftmaxForward);
  OOC_SERVE(served, cudnnSoftmaxBackward, SoftmaxBackward);
  OOC_SERVE(served, cudnnDeriveBNTensorDescriptor, DeriveDescriptor);
  OOC_SERVE(served, cudnnBatchNormalizationForwardInference, Inference);
}

}  // namespace oocdnn::shim
