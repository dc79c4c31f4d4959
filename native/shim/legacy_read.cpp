#include "shim/legacy_read.hpp"

#include "shim/gpu_facts.hpp"
#include "shim/large_tensor.hpp"
#include "shim/real.hpp"

namespace oocdnn::shim {
namespace {

void Widen(const int* from, int rank, Axes* to) {
  for (int i = 0; i < rank && i < CUDNN_DIM_MAX; ++i) (*to)[i] = from[i];
}

}  // namespace

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

cudnnStatus_t Read(cudnnTensorDescriptor_t descriptor, const void* data, TensorArgument* to) {
  to->data = const_cast<void*>(data);
  TensorValue& value = to->value;
  if (FindLarge(descriptor, &value)) return CUDNN_STATUS_SUCCESS;
  int dims[CUDNN_DIM_MAX] = {}, stride[CUDNN_DIM_MAX] = {};
  OOC_CUDNN_TRY(TheReal().cudnnGetTensorNdDescriptor(descriptor, CUDNN_DIM_MAX, &value.dtype,
                                                     &value.rank, dims, stride));
  Widen(dims, value.rank, &value.dims);
  Widen(stride, value.rank, &value.stride);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Read(cudnnActivationDescriptor_t descriptor, ActivationValue* value) {
  const Real& real = TheReal();
  OOC_CUDNN_TRY(
      real.cudnnGetActivationDescriptor(descriptor, &value->mode, &value->nans, &value->coef));
  if (value->mode != CUDNN_ACTIVATION_SWISH) return CUDNN_STATUS_SUCCESS;
  return real.cudnnGetActivationDescriptorSwishBeta(descriptor, &value->swish_beta);
}

cudnnStatus_t Read(cudnnHandle_t handle, Direction direction, const LegacyOperands& operands,
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

}  // namespace oocdnn::shim
