// The convolutions themselves where there is no GPU. The algorithm and the workspace say nothing to
// the CPU device; a wrong algorithm is refused all the same.
#include "shim/convolve.hpp"
#include "shim/descriptors.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

constexpr char kWhy[] = "no-gpu";

// What all of them take, with the checks that come before all others.
struct Common {
  cudnnHandle_t handle;
  const void *alpha, *beta;
  cudnnTensorDescriptor_t y;
};

cudnnStatus_t Begin(const Common& common, ConvolutionCall* call) {
  OOC_NEED(common.handle != nullptr, "the handle is null; cudnnCreate makes one");
  OOC_NEED(common.alpha != nullptr && common.beta != nullptr, "alpha or beta is null");
  OOC_NEED(common.y != nullptr, "the descriptor of y is null");
  call->stream = common.handle->stream;
  call->y.value = common.y->value;
  call->alpha = ScalarOf(common.alpha, common.y->value.dtype);
  call->beta = ScalarOf(common.beta, common.y->value.dtype);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetOperands(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                          cudnnConvolutionDescriptor_t convolution, ConvolutionCall* call) {
  OOC_NEED(x != nullptr && w != nullptr && convolution != nullptr, "a descriptor is null");
  call->x.value = x->value;
  call->w = w->value;
  call->convolution = convolution->value;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CheckAlgorithm(int algorithm, int count) {
  OOC_NEED(algorithm >= 0 && algorithm < count, "there is no algorithm %d", algorithm);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Forward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_desc,
                      const void* x, cudnnFilterDescriptor_t w_desc, const void* w,
                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm,
                      void* /*workspace*/, size_t /*bytes*/, const void* beta,
                      cudnnTensorDescriptor_t y_desc, void* y) {
  return Serve([&] {
    ConvolutionCall call;
    OOC_CUDNN_TRY(Begin({handle, alpha, beta, y_desc}, &call));
    OOC_CUDNN_TRY(SetOperands(x_desc, w_desc, convolution, &call));
    OOC_CUDNN_TRY(CheckAlgorithm(algorithm, CUDNN_CONVOLUTION_FWD_ALGO_COUNT));
    call.x.data = const_cast<void*>(x);
    call.w_data = const_cast<void*>(w);
    call.y.data = y;
    return Run(call, kWhy);
  });
}

cudnnStatus_t BiasActivation(cudnnHandle_t handle, const void* alpha1,
                             cudnnTensorDescriptor_t x_desc, const void* x,
                             cudnnFilterDescriptor_t w_desc, const void* w,
                             cudnnConvolutionDescriptor_t convolution,
                             cudnnConvolutionFwdAlgo_t algorithm, void* /*workspace*/,
                             size_t /*bytes*/, const void* alpha2, cudnnTensorDescriptor_t z_desc,
                             const void* z, cudnnTensorDescriptor_t bias_desc, const void* bias,
                             cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t y_desc,
                             void* y) {
  return Serve([&] {
    ConvolutionCall call;
    OOC_CUDNN_TRY(Begin({handle, alpha1, alpha2, y_desc}, &call));
    OOC_CUDNN_TRY(SetOperands(x_desc, w_desc, convolution, &call));
    OOC_CUDNN_TRY(CheckAlgorithm(algorithm, CUDNN_CONVOLUTION_FWD_ALGO_COUNT));
    OOC_NEED(bias_desc != nullptr && activation != nullptr, "a descriptor is null");
    call.x.data = const_cast<void*>(x);
    call.w_data = const_cast<void*>(w);
    call.y.data = y;
    call.bias = {bias_desc->value, const_cast<void*>(bias)};
    call.activation = ActivationOf(activation->value);
    // A factor of 0 means that z is not read: callers pass y for it, which holds nothing yet.
    call.residual_alpha = call.beta;
    call.beta = 0.0;
    if (call.residual_alpha != 0.0) {
      OOC_NEED(z_desc != nullptr && z != nullptr, "z is missing, but its factor is not 0");
      call.residual = {z_desc->value, const_cast<void*>(z)};
    }
    return Run(call, kWhy);
  });
}

cudnnStatus_t BackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t w_desc,
                           const void* w, cudnnTensorDescriptor_t dy_desc, const void* dy,
                           cudnnConvolutionDescriptor_t convolution,
                           cudnnConvolutionBwdDataAlgo_t algorithm, void* /*workspace*/,
                           size_t /*bytes*/, const void* beta, cudnnTensorDescriptor_t dx_desc,
                           void* dx) {
  return Serve([&] {
    ConvolutionCall call;
    call.direction = Direction::kBackwardData;
    OOC_CUDNN_TRY(Begin({handle, alpha, beta, dy_desc}, &call));
    OOC_CUDNN_TRY(SetOperands(dx_desc, w_desc, convolution, &call));
    OOC_CUDNN_TRY(CheckAlgorithm(algorithm, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT));
    call.x.data = dx;
    call.w_data = const_cast<void*>(w);
    call.y.data = const_cast<void*>(dy);
    return Run(call, kWhy);
  });
}

cudnnStatus_t BackwardFilter(cudnnHandle_t handle, const void* alpha,
                             cudnnTensorDescriptor_t x_desc, const void* x,
                             cudnnTensorDescriptor_t dy_desc, const void* dy,
                             cudnnConvolutionDescriptor_t convolution,
                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* /*workspace*/,
                             size_t /*bytes*/, const void* beta, cudnnFilterDescriptor_t dw_desc,
                             void* dw) {
  return Serve([&] {
    ConvolutionCall call;
    call.direction = Direction::kBackwardFilter;
    OOC_CUDNN_TRY(Begin({handle, alpha, beta, dy_desc}, &call));
    OOC_CUDNN_TRY(SetOperands(x_desc, dw_desc, convolution, &call));
    OOC_CUDNN_TRY(CheckAlgorithm(algorithm, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT));
    call.x.data = const_cast<void*>(x);
    call.w_data = dw;
    call.y.data = const_cast<void*>(dy);
    return Run(call, kWhy);
  });
}

cudnnStatus_t BackwardBias(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t dy_desc,
                           const void* dy, const void* beta, cudnnTensorDescriptor_t db_desc,
                           void* db) {
  return Serve([&] {
    ConvolutionCall call;
    call.direction = Direction::kBackwardBias;
    OOC_CUDNN_TRY(Begin({handle, alpha, beta, dy_desc}, &call));
    OOC_NEED(db_desc != nullptr, "the descriptor of db is null");
    call.y.data = const_cast<void*>(dy);
    call.bias = {db_desc->value, db};
    return Run(call, kWhy);
  });
}

}  // namespace

void ServeConvolutions(Served* served) {
  OOC_SERVE(served, cudnnConvolutionForward, Forward);
  OOC_SERVE(served, cudnnConvolutionBiasActivationForward, BiasActivation);
  OOC_SERVE(served, cudnnConvolutionBackwardData, BackwardData);
  OOC_SERVE(served, cudnnConvolutionBackwardFilter, BackwardFilter);
  OOC_SERVE(served, cudnnConvolutionBackwardBias, BackwardBias);
}

}  // namespace oocdnn::shim
