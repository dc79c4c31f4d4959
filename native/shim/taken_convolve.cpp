// The legacy convolutions where there is a GPU: those with an operand in host memory run through
// us, all others go to the real library, untouched. Descriptors are read back from the real
// library.
#include "shim/gpu_facts.hpp"
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

// Whether the call is ours, by where its operands are.
template <class... Pointers>
bool IsTaken(Pointers... pointers) {
  if ((OnHost(pointers) || ...)) return true;
  Passed();
  return false;
}

void Widen(const int* from, int rank, Axes* to) {
  for (int i = 0; i < rank && i < CUDNN_DIM_MAX; ++i) (*to)[i] = from[i];
}

cudnnStatus_t Read(cudnnTensorDescriptor_t descriptor, const void* data, TensorArgument* to) {
  int dims[CUDNN_DIM_MAX] = {}, stride[CUDNN_DIM_MAX] = {};
  TensorValue& value = to->value;
  OOC_CUDNN_TRY(TheReal().cudnnGetTensorNdDescriptor(descriptor, CUDNN_DIM_MAX, &value.dtype,
                                                     &value.rank, dims, stride));
  Widen(dims, value.rank, &value.dims);
  Widen(stride, value.rank, &value.stride);
  to->data = const_cast<void*>(data);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Read(cudnnFilterDescriptor_t descriptor, FilterValue* value) {
  int dims[CUDNN_DIM_MAX] = {};
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  OOC_CUDNN_TRY(TheReal().cudnnGetFilterNdDescriptor(descriptor, CUDNN_DIM_MAX, &value->dtype,
                                                     &format, &value->rank, dims));
  if (format == CUDNN_TENSOR_NCHW_VECT_C) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "a filter in vectors of channels");
  }
  Widen(dims, value->rank, &value->dims);
  value->stride = DenseStride(format, value->rank, value->dims);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Read(cudnnConvolutionDescriptor_t descriptor, ConvolutionValue* value) {
  constexpr int kMost = CUDNN_DIM_MAX - 2;
  int pad[kMost] = {}, stride[kMost] = {}, dilation[kMost] = {};
  const Real& real = TheReal();
  OOC_CUDNN_TRY(real.cudnnGetConvolutionNdDescriptor(descriptor, kMost, &value->rank, pad, stride,
                                                     dilation, &value->mode, &value->compute));
  OOC_CUDNN_TRY(real.cudnnGetConvolutionGroupCount(descriptor, &value->groups));
  OOC_CUDNN_TRY(real.cudnnGetConvolutionMathType(descriptor, &value->math));
  Widen(pad, value->rank, &value->pad);
  value->pad_after = value->pad;
  Widen(stride, value->rank, &value->stride);
  Widen(dilation, value->rank, &value->dilation);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Read(cudnnActivationDescriptor_t descriptor, ActivationValue* value) {
  const Real& real = TheReal();
  OOC_CUDNN_TRY(
      real.cudnnGetActivationDescriptor(descriptor, &value->mode, &value->nans, &value->coef));
  if (value->mode != CUDNN_ACTIVATION_SWISH) return CUDNN_STATUS_SUCCESS;
  return real.cudnnGetActivationDescriptorSwishBeta(descriptor, &value->swish_beta);
}

// What the four with a filter have in common.
struct Operands {
  cudnnTensorDescriptor_t x_desc;
  const void* x;
  cudnnFilterDescriptor_t w_desc;
  const void* w;
  cudnnConvolutionDescriptor_t convolution;
  cudnnTensorDescriptor_t y_desc;
  const void* y;
};

cudnnStatus_t Begin(cudnnHandle_t handle, Direction direction, const Operands& operands,
                    ConvolutionCall* call) {
  call->direction = direction;
  call->device = CurrentDevice();
  OOC_CUDNN_TRY(TheReal().cudnnGetStream(handle, &call->stream));
  OOC_CUDNN_TRY(Read(operands.y_desc, operands.y, &call->y));
  if (direction == Direction::kBackwardBias) return CUDNN_STATUS_SUCCESS;
  OOC_CUDNN_TRY(Read(operands.x_desc, operands.x, &call->x));
  OOC_CUDNN_TRY(Read(operands.w_desc, &call->w));
  OOC_CUDNN_TRY(Read(operands.convolution, &call->convolution));
  call->w_data = const_cast<void*>(operands.w);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t RunScaled(ConvolutionCall* call, const void* alpha, const void* beta) {
  OOC_NEED(alpha != nullptr && beta != nullptr, "alpha or beta is null");
  call->alpha = ScalarOf(alpha, call->y.value.dtype);
  call->beta = ScalarOf(beta, call->y.value.dtype);
  return Run(*call, "host-operand");
}

cudnnStatus_t Forward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_desc,
                      const void* x, cudnnFilterDescriptor_t w_desc, const void* w,
                      cudnnConvolutionDescriptor_t convolution, cudnnConvolutionFwdAlgo_t algorithm,
                      void* workspace, size_t bytes, const void* beta,
                      cudnnTensorDescriptor_t y_desc, void* y) {
  if (!IsTaken(x, w, y)) {
    return TheReal().cudnnConvolutionForward(handle, alpha, x_desc, x, w_desc, w, convolution,
                                             algorithm, workspace, bytes, beta, y_desc, y);
  }
  return Ours(Serve([&] {
    ConvolutionCall call;
    OOC_CUDNN_TRY(
        Begin(handle, Direction::kForward, {x_desc, x, w_desc, w, convolution, y_desc, y}, &call));
    return RunScaled(&call, alpha, beta);
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
  if (!IsTaken(x, w, z, bias, y)) {
    return TheReal().cudnnConvolutionBiasActivationForward(
        handle, alpha1, x_desc, x, w_desc, w, convolution, algorithm, workspace, bytes, alpha2,
        z_desc, z, bias_desc, bias, activation, y_desc, y);
  }
  return Ours(Serve([&] {
    ConvolutionCall call;
    OOC_CUDNN_TRY(
        Begin(handle, Direction::kForward, {x_desc, x, w_desc, w, convolution, y_desc, y}, &call));
    OOC_CUDNN_TRY(Read(bias_desc, bias, &call.bias));
    OOC_CUDNN_TRY(Read(activation, &call.activation));
    OOC_NEED(alpha2 != nullptr, "alpha2 is null");
    call.residual_alpha = ScalarOf(alpha2, call.y.value.dtype);
    // A factor of 0 means that z is not read.
    if (call.residual_alpha != 0.0) OOC_CUDNN_TRY(Read(z_desc, z, &call.residual));
    const double zero = 0.0;  // of either type
    return RunScaled(&call, alpha1, &zero);
  }));
}

cudnnStatus_t BackwardData(cudnnHandle_t handle, const void* alpha, cudnnFilterDescriptor_t w_desc,
                           const void* w, cudnnTensorDescriptor_t dy_desc, const void* dy,
                           cudnnConvolutionDescriptor_t convolution,
                           cudnnConvolutionBwdDataAlgo_t algorithm, void* workspace, size_t bytes,
                           const void* beta, cudnnTensorDescriptor_t dx_desc, void* dx) {
  if (!IsTaken(w, dy, dx)) {
    return TheReal().cudnnConvolutionBackwardData(handle, alpha, w_desc, w, dy_desc, dy,
                                                  convolution, algorithm, workspace, bytes, beta,
                                                  dx_desc, dx);
  }
  return Ours(Serve([&] {
    ConvolutionCall call;
    OOC_CUDNN_TRY(Begin(handle, Direction::kBackwardData,
                        {dx_desc, dx, w_desc, w, convolution, dy_desc, dy}, &call));
    return RunScaled(&call, alpha, beta);
  }));
}

cudnnStatus_t BackwardFilter(cudnnHandle_t handle, const void* alpha,
                             cudnnTensorDescriptor_t x_desc, const void* x,
                             cudnnTensorDescriptor_t dy_desc, const void* dy,
                             cudnnConvolutionDescriptor_t convolution,
                             cudnnConvolutionBwdFilterAlgo_t algorithm, void* workspace,
                             size_t bytes, const void* beta, cudnnFilterDescriptor_t dw_desc,
                             void* dw) {
  if (!IsTaken(x, dy, dw)) {
    return TheReal().cudnnConvolutionBackwardFilter(handle, alpha, x_desc, x, dy_desc, dy,
                                                    convolution, algorithm, workspace, bytes, beta,
                                                    dw_desc, dw);
  }
  return Ours(Serve([&] {
    ConvolutionCall call;
    OOC_CUDNN_TRY(Begin(handle, Direction::kBackwardFilter,
                        {x_desc, x, dw_desc, dw, convolution, dy_desc, dy}, &call));
    return RunScaled(&call, alpha, beta);
  }));
}

cudnnStatus_t BackwardBias(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t dy_desc,
                           const void* dy, const void* beta, cudnnTensorDescriptor_t db_desc,
                           void* db) {
  if (!IsTaken(dy, db)) {
    return TheReal().cudnnConvolutionBackwardBias(handle, alpha, dy_desc, dy, beta, db_desc, db);
  }
  return Ours(Serve([&] {
    ConvolutionCall call;
    OOC_CUDNN_TRY(Begin(handle, Direction::kBackwardBias,
                        {nullptr, nullptr, nullptr, nullptr, nullptr, dy_desc, dy}, &call));
    OOC_CUDNN_TRY(Read(db_desc, db, &call.bias));
    return RunScaled(&call, alpha, beta);
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
