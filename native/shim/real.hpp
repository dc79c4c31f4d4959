// The real library's functions that the shim itself calls, by the declarations of abi/cudnn.h.
#pragma once

#include "abi/cudnn.h"
#include "abi/dropin.h"

namespace oocdnn::shim {

// Those that compute and that we never serve where there is a GPU.
#define OOC_OTHER_FUNCTIONS(F)                \
  F(cudnnIm2Col)                              \
  F(cudnnTransformTensor)                     \
  F(cudnnTransformTensorEx)                   \
  F(cudnnTransformFilter)                     \
  F(cudnnAddTensor)                           \
  F(cudnnOpTensor)                            \
  F(cudnnReduceTensor)                        \
  F(cudnnSetTensor)                           \
  F(cudnnScaleTensor)                         \
  F(cudnnSoftmaxForward)                      \
  F(cudnnSoftmaxBackward)                     \
  F(cudnnPoolingForward)                      \
  F(cudnnPoolingBackward)                     \
  F(cudnnActivationForward)                   \
  F(cudnnActivationBackward)                  \
  F(cudnnLRNCrossChannelForward)              \
  F(cudnnLRNCrossChannelBackward)             \
  F(cudnnDivisiveNormalizationForward)        \
  F(cudnnDivisiveNormalizationBackward)       \
  F(cudnnBatchNormalizationForwardInference)  \
  F(cudnnBatchNormalizationForwardTraining)   \
  F(cudnnBatchNormalizationForwardTrainingEx) \
  F(cudnnBatchNormalizationBackward)          \
  F(cudnnBatchNormalizationBackwardEx)        \
  F(cudnnNormalizationForwardInference)       \
  F(cudnnNormalizationForwardTraining)        \
  F(cudnnNormalizationBackward)               \
  F(cudnnSpatialTfGridGeneratorForward)       \
  F(cudnnSpatialTfGridGeneratorBackward)      \
  F(cudnnSpatialTfSamplerForward)             \
  F(cudnnSpatialTfSamplerBackward)            \
  F(cudnnDropoutForward)                      \
  F(cudnnDropoutBackward)

#define OOC_REAL_FUNCTIONS(F)                      \
  OOC_OTHER_FUNCTIONS(F)                           \
  F(cudnnGetStream)                                \
  F(cudnnGetLastErrorString)                       \
  F(cudnnBackendCreateDescriptor)                  \
  F(cudnnBackendDestroyDescriptor)                 \
  F(cudnnBackendInitialize)                        \
  F(cudnnBackendSetAttribute)                      \
  F(cudnnBackendGetAttribute)                      \
  F(cudnnBackendFinalize)                          \
  F(cudnnBackendExecute)                           \
  F(cudnnBackendPopulateCudaGraph)                 \
  F(cudnnBackendUpdateCudaGraph)                   \
  F(cudnnGetExecutionPlanWorkspaceSize)            \
  F(cudnnDestroyTensorDescriptor)                  \
  F(cudnnSetTensor4dDescriptor)                    \
  F(cudnnSetTensor4dDescriptorEx)                  \
  F(cudnnGetTensor4dDescriptor)                    \
  F(cudnnSetTensorNdDescriptor)                    \
  F(cudnnSetTensorNdDescriptorEx)                  \
  F(cudnnGetTensorNdDescriptor)                    \
  F(cudnnGetTensorSizeInBytes)                     \
  F(cudnnGetConvolution2dForwardOutputDim)         \
  F(cudnnGetConvolutionNdForwardOutputDim)         \
  F(cudnnGetFilterNdDescriptor)                    \
  F(cudnnGetConvolutionNdDescriptor)               \
  F(cudnnGetConvolutionGroupCount)                 \
  F(cudnnGetConvolutionMathType)                   \
  F(cudnnGetActivationDescriptor)                  \
  F(cudnnGetActivationDescriptorSwishBeta)         \
  F(cudnnConvolutionForward)                       \
  F(cudnnConvolutionBiasActivationForward)         \
  F(cudnnConvolutionBackwardData)                  \
  F(cudnnConvolutionBackwardFilter)                \
  F(cudnnConvolutionBackwardBias)                  \
  F(cudnnGetConvolutionForwardAlgorithm_v7)        \
  F(cudnnFindConvolutionForwardAlgorithm)          \
  F(cudnnFindConvolutionForwardAlgorithmEx)        \
  F(cudnnGetConvolutionForwardWorkspaceSize)       \
  F(cudnnGetConvolutionBackwardDataAlgorithm_v7)   \
  F(cudnnFindConvolutionBackwardDataAlgorithm)     \
  F(cudnnFindConvolutionBackwardDataAlgorithmEx)   \
  F(cudnnGetConvolutionBackwardDataWorkspaceSize)  \
  F(cudnnGetConvolutionBackwardFilterAlgorithm_v7) \
  F(cudnnFindConvolutionBackwardFilterAlgorithm)   \
  F(cudnnFindConvolutionBackwardFilterAlgorithmEx) \
  F(cudnnGetConvolutionBackwardFilterWorkspaceSize)

// Null where the library lacks a function.
struct Real {
#define OOC_MEMBER(name) decltype(&::name) name = nullptr;
  OOC_REAL_FUNCTIONS(OOC_MEMBER)
#undef OOC_MEMBER
};

// Set once, by FillReal, before any function of ours is called.
const Real& TheReal();
void FillReal(OocFunction (*real)(const char* name));

}  // namespace oocdnn::shim
