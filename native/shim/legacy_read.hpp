// Legacy descriptors of the real library, read back as values; of large tensors what we remember.
#pragma once

#include "abi/cudnn_legacy.h"
#include "shim/convolve.hpp"

namespace oocdnn::shim {

cudnnStatus_t Read(cudnnTensorDescriptor_t descriptor, const void* data, TensorArgument* to);
cudnnStatus_t Read(cudnnActivationDescriptor_t descriptor, ActivationValue* value);
cudnnStatus_t Read(cudnnFilterDescriptor_t descriptor, FilterValue* value);
cudnnStatus_t Read(cudnnConvolutionDescriptor_t descriptor, ConvolutionValue* value);

// What the convolutions with a filter have in common; x, w, y are dx, dw, dy where the direction
// says so. Backward bias has y alone.
struct LegacyOperands {
  cudnnTensorDescriptor_t x_desc;
  const void* x;
  cudnnFilterDescriptor_t w_desc;
  const void* w;
  cudnnConvolutionDescriptor_t convolution;
  cudnnTensorDescriptor_t y_desc;
  const void* y;
};

// The problem, the client's stream and the current device.
cudnnStatus_t Read(cudnnHandle_t handle, Direction direction, const LegacyOperands& operands,
                   ConvolutionCall* call);

}  // namespace oocdnn::shim
