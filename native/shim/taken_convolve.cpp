// The legacy convolutions where there is a GPU: those with an operand in host memory run through
// us, and those whose workspace was taken when it was asked for; all others go to the real library,
// untouched.
#include "shim/gpu_facts.hpp"
#include "shim/legacy_read.hpp"
#include "shim/legacy_taken.hpp"
#include "shim/real.hpp"
#include "shim/served.hpp"
#include "shim/taking.hpp"

namespace oocdnn::shim {
namespace {

bool OnHost(const void* pointer) {
  if (pointer == nullptr) return false;
  const Place place = PlaceOf(pointer);
  return place == Place::kPageable || place == Place::kPinned;
}

// Why the call is ours, or null: by where its operands are, or because its algorithm's workspace
// was taken.
template <class... Pointers>
const char* WhyOurs(const LegacyChoice& choice, ConvolutionCall* call, Pointers... pointers) {
  const char* const why = (OnHost(pointers) || ...) ? "host-operand" : nullptr;
  if (why != nullptr || !AnyLegacyTaken()) {
    if (why == nullptr) Passed();
    return why;
  }
  ConvolutionCall problem;
  const bool known =
      Read(choice.handle, choice.direction, choice.operands, &problem) == CUDNN_STATUS_SUCCESS;
  if (!known || !LegacyTaken(problem, choice.algorithm)) {
    Passed();
    return nullptr;
  }
  call->workspace = choice.workspace;
  call->workspace_bytes = static_cast<int64_t>(choice.bytes);
  return "workspace";
}

cudnnStatus_t RunScaled(ConvolutionCall* call, const char* why, const void* alpha,
                        const void* beta) {
  OOC_NEED(alpha != nullptr && beta != nullptr, "alpha or beta is null");
  call->alpha = ScalarOf(alpha, call->y.value.dtype);
  call->beta = ScalarOf(beta, call->y.value.dtype);
  return Run(*call, why);
}

cudnnStatus_t Forward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_desc,
                      const void* x, cudnnFilterDescriptor_t w_desc, const void* w,
                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm,
                      void* workspace, size_t bytes, const void* beta,
                      cudnnTensorDescriptor_t y_desc, void* y) {
  const LegacyOperands operands{x_desc, x, w_desc, w, convolution, y_desc, y};
  ConvolutionCall call;
  const char* const why =
      WhyOurs({handle, Direction::kForward, operands, algorithm, workspace, bytes}, &call, x, w, y);
  if (why == nullptr) {
    return TheReal().cudnnConvolutionForward(handle, alpha, x_desc, x, w_desc, w, convolution,
                                             algorithm, workspace, bytes, beta, y_desc, y);
  }
  return Ours(Serve([&] {
    OOC_CUDNN_TRY(Read(handle, Direction::kForward, operands, &call));
    return RunScaled(&call, why, alpha, beta);
  }));
}

cudnnStatus_t BiasActivation(cudnnHandle_t handle, const void* alpha1,
                             cudnnTensorDescriptor_t x_desc, const void* x,
                             cudnnFilterDescriptor_t w_desc, const void* w,
                             cudnnConvolutionDescriptor_t convolution,
                             cudnnConvolutionFwdAlgo_t algorithm, void* workspace, size_t bytes,
                             const void* alpha2, cudnnTensorDescriptor_t z_desc, const void* z,
                             cudnnTensorDescriptor_t bias_desc, const void* bias,
                             cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t y_desc,
                             void* y) {
  const LegacyOperands operands{x_desc, x, w_desc, w, convolution, y_desc, y};
  ConvolutionCall call;
  const char* const why =
      WhyOurs({handle, Direction::kForward, operands, algorithm, workspace, bytes}, &call, x, w, z,
              bias, y);
  if (why == nullptr) {
    return TheReal().cudnnConvolutionBiasActivationForward(
        handle, alpha1, x_desc, x, w_desc, w, convolution, algorithm, workspace, bytes, alpha2,
        z_desc, z, bias_desc, bias, activation, y_desc, y);
  }
  return Ours(Serve([&] {
    OOC_CUDNN_TRY(Read(handle, Direction::kForward, operands, &call));
    OOC_CUDNN_TRY(Read(bias_desc, bias, &call.bias));
    OOC_CUDNN_TRY(Read(activation, &call.activation));
    OOC_NEED(alpha2 != nullptr, "alpha2 is null");
    call.residual_alpha = ScalarOf(alpha2, call.y.value.dtype);
    // A factor of 0 means that z is not read.
    if (call.residual_alpha != 0.0) OOC_CUDNN_TRY(Read(z_desc, z, &call.residual));
    const double zero = 0.0;  // of either type
    return RunScaled(&call, why, alpha1, &zero);
  }));
}

cudnnStatus_t BackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t w_desc,
                           const void* w, cudnnTensorDescriptor_t dy_desc, const void* dy,
                           cudnnConvolutionDescriptor_t convolution,
                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace, size_t bytes,
                           const void* beta, cudnnTensorDescriptor_t dx_desc, void* dx) {
  const LegacyOperands operands{dx_desc, dx, w_desc, w, convolution, dy_desc, dy};
  ConvolutionCall call;
  const char* const why = WhyOurs(
      {handle, Direction::kBackwardData, operands, algorithm, workspace, bytes}, &call, w, dy, dx);
  if (why == nullptr) {
    return TheReal().cudnnConvolutionBackwardData(handle, alpha, w_desc, w, dy_desc, dy,
                                                  convolution, algorithm, workspace, bytes, beta,
                                                  dx_desc, dx);
  }
  return Ours(Serve([&] {
    OOC_CUDNN_TRY(Read(handle, Direction::kBackwardData, operands, &call));
    return RunScaled(&call, why, alpha, beta);
  }));
}

cudnnStatus_t BackwardFilter(cudnnHandle_t handle, const void* alpha,
                             cudnnTensorDescriptor_t x_desc, const void* x,
                             cudnnTensorDescriptor_t dy_desc, const void* dy,
                             cudnnConvolutionDescriptor_t convolution,
                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                             size_t bytes, const void* beta, cudnnFilterDescriptor_t dw_desc,
                             void* dw) {
  const LegacyOperands operands{x_desc, x, dw_desc, dw, convolution, dy_desc, dy};
  ConvolutionCall call;
  const char* const why =
      WhyOurs({handle, Direction::kBackwardFilter, operands, algorithm, workspace, bytes}, &call, x,
              dy, dw);
  if (why == nullptr) {
    return TheReal().cudnnConvolutionBackwardFilter(handle, alpha, x_desc, x, dy_desc, dy,
                                                    convolution, algorithm, workspace, bytes, beta,
                                                    dw_desc, dw);
  }
  return Ours(Serve([&] {
    OOC_CUDNN_TRY(Read(handle, Direction::kBackwardFilter, operands, &call));
    return RunScaled(&call, why, alpha, beta);
  }));
}

cudnnStatus_t BackwardBias(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t dy_desc,
                           const void* dy, const void* beta, cudnnTensorDescriptor_t db_desc,
                           void* db) {
  if (!OnHost(dy) && !OnHost(db)) {
    Passed();
    return TheReal().cudnnConvolutionBackwardBias(handle, alpha, dy_desc, dy, beta, db_desc, db);
  }
  return Ours(Serve([&] {
    ConvolutionCall call;
    OOC_CUDNN_TRY(Read(handle, Direction::kBackwardBias,
                       {nullptr, nullptr, nullptr, nullptr, nullptr, dy_desc, dy}, &call));
    OOC_CUDNN_TRY(Read(db_desc, db, &call.bias));
    return RunScaled(&call, "host-operand", alpha, beta);
  }));
}

}  // namespace

void ServeTakenConvolutions(Served* served) {
  OOC_SERVE(served, cudnnConvolutionForward, Forward);
  OOC_SERVE(served, cudnnConvolutionBiasActivationForward, BiasActivation);
  OOC_SERVE(served, cudnnConvolutionBackwardData, BackwardData);
  OOC_SERVE(served, cudnnConvolutionBackwardFilter, BackwardFilter);
  OOC_SERVE(served, cudnnConvolutionBackwardBias, BackwardBias);
}

}  // namespace oocdnn::shim
