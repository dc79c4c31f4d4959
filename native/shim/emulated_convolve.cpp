// The convolutions themselves where there is no GPU. The algorithm and the workspace say nothing to
// the CPU device; a wrong algorithm is refused all the same.
#include <utility>

#include "shim/descriptors.hpp"
#include "shim/legacy_interception.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

cudnnStatus_t NothingMore(ConvolutionCall*) { return CUDNN_STATUS_SUCCESS; }

// Runs a convolution. `count` is the number of the direction's algorithms. `fill` sets the fields
// of the call that only some functions have.
template <class Fill>
cudnnStatus_t Compute(const LegacyChoice& choice, int count, const void* alpha, const void* beta,
                      const Fill& fill) {
  return Serve([&] {
    ConvolutionCall call;
    const LegacyOperands& of = choice.operands;
    call.direction = choice.direction;
    OOC_CUDNN_TRY(CheckCall(choice.handle, alpha, beta));
    OOC_NEED(of.y_desc != nullptr, "the descriptor of y is null");
    call.stream = choice.handle->stream;
    call.y = {of.y_desc->value, const_cast<void*>(of.y)};
    call.alpha = ScalarOf(alpha, call.y.value.dtype);
    call.beta = ScalarOf(beta, call.y.value.dtype);
    if (choice.direction != Direction::kBackwardBias) {
      OOC_NEED(of.x_desc != nullptr && of.w_desc != nullptr && of.convolution != nullptr,
               "a descriptor is null");
      OOC_NEED(choice.algorithm >= 0 && choice.algorithm < count, "there is no algorithm %d",
               choice.algorithm);
      call.x = {of.x_desc->value, const_cast<void*>(of.x)};
      call.w = of.w_desc->value;
      call.w_data = const_cast<void*>(of.w);
      call.convolution = of.convolution->value;
    }
    OOC_CUDNN_TRY(fill(&call));
    return Run(call, "no-gpu");
  });
}

cudnnStatus_t Forward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_desc,
                      const void* x, cudnnFilterDescriptor_t w_desc, const void* w,
                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm,
                      void* /*workspace*/, size_t /*bytes*/, const void* beta,
                      cudnnTensorDescriptor_t y_desc, void* y) {
  const LegacyOperands operands{x_desc, x, w_desc, w, convolution, y_desc, y};
  const LegacyChoice choice{handle, Direction::kForward, operands, algorithm, nullptr, 0};
  return Compute(choice, CUDNN_CONVOLUTION_FWD_ALGO_COUNT, alpha, beta, NothingMore);
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
  const LegacyOperands operands{x_desc, x, w_desc, w, convolution, y_desc, y};
  const LegacyChoice choice{handle, Direction::kForward, operands, algorithm, nullptr, 0};
  const auto fill = [&](ConvolutionCall* call) {
    OOC_NEED(bias_desc != nullptr && activation != nullptr, "a descriptor is null");
    call->bias = {bias_desc->value, const_cast<void*>(bias)};
    call->activation = ActivationOf(activation->value);
    // A factor of 0 means that z is not read: callers pass y for it, which holds nothing yet.
    call->residual_alpha = std::exchange(call->beta, 0.0);
    if (call->residual_alpha != 0.0) {
      OOC_NEED(z_desc != nullptr && z != nullptr, "z is missing, but its factor is not 0");
      call->residual = {z_desc->value, const_cast<void*>(z)};
    }
    return CUDNN_STATUS_SUCCESS;
  };
  return Compute(choice, CUDNN_CONVOLUTION_FWD_ALGO_COUNT, alpha1, alpha2, fill);
}

cudnnStatus_t BackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t w_desc,
                           const void* w, cudnnTensorDescriptor_t dy_desc, const void* dy,
                           cudnnConvolutionDescriptor_t convolution,
                           cudnnConvolutionBwdDataAlgo_t algorithm, void* /*workspace*/,
                           size_t /*bytes*/, const void* beta, cudnnTensorDescriptor_t dx_desc,
                           void* dx) {
  const LegacyOperands operands{dx_desc, dx, w_desc, w, convolution, dy_desc, dy};
  const LegacyChoice choice{handle, Direction::kBackwardData, operands, algorithm, nullptr, 0};
  return Compute(choice, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, alpha, beta, NothingMore);
}

cudnnStatus_t BackwardFilter(cudnnHandle_t handle, const void* alpha,
                             cudnnTensorDescriptor_t x_desc, const void* x,
                             cudnnTensorDescriptor_t dy_desc, const void* dy,
                             cudnnConvolutionDescriptor_t convolution,
                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* /*workspace*/,
                             size_t /*bytes*/, const void* beta, cudnnFilterDescriptor_t dw_desc,
                             void* dw) {
  const LegacyOperands operands{x_desc, x, dw_desc, dw, convolution, dy_desc, dy};
  const LegacyChoice choice{handle, Direction::kBackwardFilter, operands, algorithm, nullptr, 0};
  return Compute(choice, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, alpha, beta, NothingMore);
}

cudnnStatus_t BackwardBias(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t dy_desc,
                           const void* dy, const void* beta, cudnnTensorDescriptor_t db_desc,
                           void* db) {
  const LegacyOperands operands{nullptr, nullptr, nullptr, nullptr, nullptr, dy_desc, dy};
  const LegacyChoice choice{handle, Direction::kBackwardBias, operands, 0, nullptr, 0};
  return Compute(choice, 0, alpha, beta, [&](ConvolutionCall* call) {
    OOC_NEED(db_desc != nullptr, "the descriptor of db is null");
    call->bias = {db_desc->value, db};
    return CUDNN_STATUS_SUCCESS;
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
