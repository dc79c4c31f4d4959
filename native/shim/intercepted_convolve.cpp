// The legacy convolutions where there is a GPU: those with an operand in host memory run through
// us, and those whose workspace was taken when it was asked for; all others go to the real library,
// untouched.
#include <algorithm>
#include <array>
#include <optional>

#include "shim/gpu_facts.hpp"
#include "shim/interception.hpp"
#include "shim/large_tensor.hpp"
#include "shim/legacy_interception.hpp"
#include "shim/legacy_read.hpp"
#include "shim/real.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

// Operands that are not given lie nowhere.
Tier TierOfOperand(const void* pointer) {
  return pointer != nullptr ? TierOf(pointer) : Tier::kUnknown;
}

cudnnStatus_t Scale(const void* alpha, const void* beta, ConvolutionCall* call) {
  OOC_NEED(alpha != nullptr && beta != nullptr, "alpha or beta is null");
  call->alpha = ScalarOf(alpha, call->y.value.dtype);
  call->beta = ScalarOf(beta, call->y.value.dtype);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t NothingMore(ConvolutionCall*) { return CUDNN_STATUS_SUCCESS; }

// Whether the call is of an algorithm whose workspace was taken.
bool IsTaken(const LegacyChoice& choice, const ConvolutionCall& call) {
  return AnyLegacyTaken() && choice.direction != Direction::kBackwardBias &&
         LegacyTaken(call, choice.algorithm);
}

// The call's end, or nothing where it is the real library's. `fill` reads what a function has
// beside a convolution and its factors. `pointers` are all that the function was given.
template <class Fill, class... Pointers>
std::optional<cudnnStatus_t> RunOurs(const LegacyChoice& choice, const void* alpha,
                                     const void* beta, const Fill& fill, Pointers... pointers) {
  return Decided([&](bool* must) -> std::optional<cudnnStatus_t> {
    const std::array tiers = {TierOfOperand(pointers)...};
    const auto any = [&](Tier tier) {
      return std::find(tiers.begin(), tiers.end(), tier) != tiers.end();
    };
    const bool large =
        AnyLarge() && (IsLarge(choice.operands.x_desc) || IsLarge(choice.operands.y_desc));
    const bool on_host = any(Tier::kPageable) || any(Tier::kPinned);
    *must = any(Tier::kPageable) || large;
    if (!on_host && !large && !AnyLegacyTaken()) return std::nullopt;
    ConvolutionCall call;
    const auto pass = [&](cudnnStatus_t status) {
      return *must ? std::optional(status) : std::nullopt;
    };
    cudnnStatus_t status = Read(choice.handle, choice.direction, choice.operands, &call);
    if (status != CUDNN_STATUS_SUCCESS) return pass(status);
    const bool taken = large || IsTaken(choice, call);
    if (!on_host && !taken) return std::nullopt;
    *must = *must || taken;
    if (!on_host) {
      call.workspace = choice.workspace;
      call.workspace_bytes = static_cast<int64_t>(choice.bytes);
    }
    status = fill(&call);
    if (status == CUDNN_STATUS_SUCCESS) status = Scale(alpha, beta, &call);
    if (status != CUDNN_STATUS_SUCCESS) return pass(status);
    const char* const why = on_host ? "host-operand" : large ? "2^31" : "workspace";
    return RunTaken(call, why, must);
  });
}

cudnnStatus_t Forward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_desc,
                      const void* x, cudnnFilterDescriptor_t w_desc, const void* w,
                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm,
                      void* workspace, size_t bytes, const void* beta,
                      cudnnTensorDescriptor_t y_desc, void* y) {
  const LegacyOperands operands{x_desc, x, w_desc, w, convolution, y_desc, y};
  const LegacyChoice choice{handle, Direction::kForward, operands, algorithm, workspace, bytes};
  const auto answer = RunOurs(choice, alpha, beta, NothingMore, x, w, y);
  if (answer) return *answer;
  return TheReal().cudnnConvolutionForward(handle, alpha, x_desc, x, w_desc, w, convolution,
                                           algorithm, workspace, bytes, beta, y_desc, y);
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
  const auto fill = [&](ConvolutionCall* call) {
    OOC_CUDNN_TRY(Read(bias_desc, bias, &call->bias));
    ActivationValue value;
    OOC_CUDNN_TRY(Read(activation, &value));
    call->activation = ActivationOf(value);
    OOC_NEED(alpha2 != nullptr, "alpha2 is null");
    call->residual_alpha = ScalarOf(alpha2, call->y.value.dtype);
    // A factor of 0 means that z is not read.
    if (call->residual_alpha != 0.0) OOC_CUDNN_TRY(Read(z_desc, z, &call->residual));
    return CUDNN_STATUS_SUCCESS;
  };
  const LegacyChoice choice{handle, Direction::kForward, operands, algorithm, workspace, bytes};
  const double zero = 0.0;  // of either type
  const auto answer = RunOurs(choice, alpha1, &zero, fill, x, w, z, bias, y);
  if (answer) return *answer;
  return TheReal().cudnnConvolutionBiasActivationForward(
      handle, alpha1, x_desc, x, w_desc, w, convolution, algorithm, workspace, bytes, alpha2,
      z_desc, z, bias_desc, bias, activation, y_desc, y);
}

cudnnStatus_t BackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t w_desc,
                           const void* w, cudnnTensorDescriptor_t dy_desc, const void* dy,
                           cudnnConvolutionDescriptor_t convolution,
                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace, size_t bytes,
                           const void* beta, cudnnTensorDescriptor_t dx_desc, void* dx) {
  const LegacyOperands operands{dx_desc, dx, w_desc, w, convolution, dy_desc, dy};
  const LegacyChoice choice{handle, Direction::kBackwardData, operands, algorithm, workspace,
                            bytes};
  const auto answer = RunOurs(choice, alpha, beta, NothingMore, w, dy, dx);
  if (answer) return *answer;
  return TheReal().cudnnConvolutionBackwardData(handle, alpha, w_desc, w, dy_desc, dy, convolution,
                                                algorithm, workspace, bytes, beta, dx_desc, dx);
}

cudnnStatus_t BackwardFilter(cudnnHandle_t handle, const void* alpha,
                             cudnnTensorDescriptor_t x_desc, const void* x,
                             cudnnTensorDescriptor_t dy_desc, const void* dy,
                             cudnnConvolutionDescriptor_t convolution,
                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                             size_t bytes, const void* beta, cudnnFilterDescriptor_t dw_desc,
                             void* dw) {
  const LegacyOperands operands{x_desc, x, dw_desc, dw, convolution, dy_desc, dy};
  const LegacyChoice choice{handle, Direction::kBackwardFilter, operands, algorithm, workspace,
                            bytes};
  const auto answer = RunOurs(choice, alpha, beta, NothingMore, x, dy, dw);
  if (answer) return *answer;
  return TheReal().cudnnConvolutionBackwardFilter(handle, alpha, x_desc, x, dy_desc, dy,
                                                  convolution, algorithm, workspace, bytes, beta,
                                                  dw_desc, dw);
}

cudnnStatus_t BackwardBias(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t dy_desc,
                           const void* dy, const void* beta, cudnnTensorDescriptor_t db_desc,
                           void* db) {
  const LegacyOperands operands{nullptr, nullptr, nullptr, nullptr, nullptr, dy_desc, dy};
  const LegacyChoice choice{handle, Direction::kBackwardBias, operands, 0, nullptr, 0};
  const auto fill = [&](ConvolutionCall* call) { return Read(db_desc, db, &call->bias); };
  const auto answer = RunOurs(choice, alpha, beta, fill, dy, db);
  if (answer) return *answer;
  return TheReal().cudnnConvolutionBackwardBias(handle, alpha, dy_desc, dy, beta, db_desc, db);
}

}  // namespace

void ServeInterceptedConvolutions(Served* served) {
  OOC_SERVE(served, cudnnConvolutionForward, Forward);
  OOC_SERVE(served, cudnnConvolutionBiasActivationForward, BiasActivation);
  OOC_SERVE(served, cudnnConvolutionBackwardData, BackwardData);
  OOC_SERVE(served, cudnnConvolutionBackwardFilter, BackwardFilter);
  OOC_SERVE(served, cudnnConvolutionBackwardBias, BackwardBias);
}

}  // namespace oocdnn::shim
