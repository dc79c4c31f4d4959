// Descriptors of activations and of operations on tensors.
#include "shim/descriptors.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

using Activation = cudnnActivationDescriptor_t;
using OpTensor = cudnnOpTensorDescriptor_t;

bool IsNanMode(cudnnNanPropagation_t nans) {
  return nans == CUDNN_NOT_PROPAGATE_NAN || nans == CUDNN_PROPAGATE_NAN;
}

cudnnStatus_t SetActivation(Activation activation, cudnnActivationMode_t mode,
                            cudnnNanPropagation_t nans, double coef) {
  OOC_NEED(activation != nullptr, "the descriptor is null");
  OOC_NEED(mode >= CUDNN_ACTIVATION_SIGMOID && mode <= CUDNN_ACTIVATION_SWISH,
           "there is no activation %d", mode);
  OOC_NEED(IsNanMode(nans), "there is no way %d with NaNs", nans);
  activation->value.mode = mode;
  activation->value.nans = nans;
  activation->value.coef = coef;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetActivation(Activation activation, cudnnActivationMode_t* mode,
                            cudnnNanPropagation_t* nans, double* coef) {
  OOC_NEED(activation != nullptr, "the descriptor is null");
  Give(activation->value.mode, mode);
  Give(activation->value.nans, nans);
  Give(activation->value.coef, coef);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetSwishBeta(Activation activation, double beta) {
  OOC_NEED(activation != nullptr, "the descriptor is null");
  activation->value.swish_beta = beta;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetSwishBeta(Activation activation, double* beta) {
  OOC_NEED(activation != nullptr && beta != nullptr, "the descriptor or the place is null");
  *beta = activation->value.swish_beta;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetOpTensor(OpTensor descriptor, cudnnOpTensorOp_t op, cudnnDataType_t compute,
                          cudnnNanPropagation_t nans) {
  OOC_NEED(descriptor != nullptr, "the descriptor is null");
  OOC_NEED(op >= CUDNN_OP_TENSOR_ADD && op <= CUDNN_OP_TENSOR_NOT, "there is no operation %d", op);
  OOC_NEED(SizeOf(compute) != 0, "nothing computes in the type %d", compute);
  OOC_NEED(IsNanMode(nans), "there is no way %d with NaNs", nans);
  *descriptor = {op, compute, nans};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetOpTensor(OpTensor descriptor, cudnnOpTensorOp_t* op, cudnnDataType_t* compute,
                          cudnnNanPropagation_t* nans) {
  OOC_NEED(descriptor != nullptr, "the descriptor is null");
  Give(descriptor->op, op);
  Give(descriptor->compute, compute);
  Give(descriptor->nans, nans);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

void ServeOperationDescriptors(Served* served) {
  OOC_SERVE(served, cudnnCreateActivationDescriptor, Create<cudnnActivationStruct>);
  OOC_SERVE(served, cudnnDestroyActivationDescriptor, Destroy<cudnnActivationStruct>);
  OOC_SERVE(served, cudnnSetActivationDescriptor, SetActivation);
  OOC_SERVE(served, cudnnGetActivationDescriptor, GetActivation);
  OOC_SERVE(served, cudnnSetActivationDescriptorSwishBeta, SetSwishBeta);
  OOC_SERVE(served, cudnnGetActivationDescriptorSwishBeta, GetSwishBeta);
  OOC_SERVE(served, cudnnCreateOpTensorDescriptor, Create<cudnnOpTensorStruct>);
  OOC_SERVE(served, cudnnDestroyOpTensorDescriptor, Destroy<cudnnOpTensorStruct>);
  OOC_SERVE(served, cudnnSetOpTensorDescriptor, SetOpTensor);
  OOC_SERVE(served, cudnnGetOpTensorDescriptor, GetOpTensor);
}

}  // namespace oocdnn::shim
