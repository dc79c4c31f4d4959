// What the real library says of algorithms and their workspaces where there is a GPU: a workspace
// that is too large becomes the one that our tiles need. What would be tried on operands that no
// GPU reads is listed as it is without them.
#include <algorithm>

#include "shim/gpu_facts.hpp"
#include "shim/legacy_taken.hpp"
#include "shim/real.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

// Problems that cannot be read are left as they are.
bool ReadProblem(cudnnHandle_t handle, Direction direction, const LegacyOperands& operands,
                 ConvolutionCall* problem) {
  return Read(handle, direction, operands, problem) == CUDNN_STATUS_SUCCESS;
}

template <class... Pointers>
bool AnyPageable(Pointers... pointers) {
  return ((pointers != nullptr && PlaceOf(pointers) == Place::kPageable) || ...);
}

cudnnStatus_t RefuseTrial() {
  return Ours(Refuse(CUDNN_STATUS_NOT_SUPPORTED, "algorithms are not tried on host operands"));
}

template <class Performance>
cudnnStatus_t Listed(cudnnStatus_t status, cudnnHandle_t handle, Direction direction,
                     const LegacyOperands& operands, const int* returned, Performance* results) {
  Passed();
  if (status != CUDNN_STATUS_SUCCESS || returned == nullptr || results == nullptr) return status;
  static_cast<void>(Serve([&] {
    ConvolutionCall problem;
    if (!ReadProblem(handle, direction, operands, &problem)) return CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < *returned; ++i) {
      if (results[i].status != CUDNN_STATUS_SUCCESS) continue;
      // Some clients set the listed math type before they compute, others keep theirs.
      size_t listed = results[i].memory, kept = results[i].memory;
      const cudnnMathType_t math = problem.convolution.math;
      TakeWorkspace(problem, results[i].algo, &kept);
      problem.convolution.math = results[i].mathType;
      TakeWorkspace(problem, results[i].algo, &listed);
      problem.convolution.math = math;
      results[i].memory = std::max(listed, kept);
    }
    return CUDNN_STATUS_SUCCESS;
  }));
  return status;
}

cudnnStatus_t Sized(cudnnStatus_t status, cudnnHandle_t handle, Direction direction,
                    const LegacyOperands& operands, int algorithm, size_t* bytes) {
  Passed();
  if (status != CUDNN_STATUS_SUCCESS || bytes == nullptr) return status;
  static_cast<void>(Serve([&] {
    ConvolutionCall problem;
    if (ReadProblem(handle, direction, operands, &problem)) {
      TakeWorkspace(problem, algorithm, bytes);
    }
    return CUDNN_STATUS_SUCCESS;
  }));
  return status;
}

cudnnStatus_t ListForward(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                          cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t convolution,
                          cudnnTensorDescriptor_t y, int requested, int* returned,
                          cudnnConvolutionFwdAlgoPerf_t* results) {
  return Listed(TheReal().cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, convolution, y,
                                                                 requested, returned, results),
                handle, Direction::kForward, {x, nullptr, w, nullptr, convolution, y, nullptr},
                returned, results);
}

cudnnStatus_t FindForward(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                          cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t convolution,
                          cudnnTensorDescriptor_t y, int requested, int* returned,
                          cudnnConvolutionFwdAlgoPerf_t* results) {
  return Listed(TheReal().cudnnFindConvolutionForwardAlgorithm(handle, x, w, convolution, y,
                                                               requested, returned, results),
                handle, Direction::kForward, {x, nullptr, w, nullptr, convolution, y, nullptr},
                returned, results);
}

cudnnStatus_t TryForward(cudnnHandle_t handle, cudnnTensorDescriptor_t x, const void* x_data,
                         cudnnFilterDescriptor_t w, const void* w_data,
                         cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y,
                         void* y_data, int requested, int* returned,
                         cudnnConvolutionFwdAlgoPerf_t* results, void* workspace, size_t bytes) {
  if (AnyPageable(x_data, w_data, y_data)) {
    if (TheReal().cudnnGetConvolutionForwardAlgorithm_v7 == nullptr) return RefuseTrial();
    return ListForward(handle, x, w, convolution, y, requested, returned, results);
  }
  return Listed(TheReal().cudnnFindConvolutionForwardAlgorithmEx(
                    handle, x, x_data, w, w_data, convolution, y, y_data, requested, returned,
                    results, workspace, bytes),
                handle, Direction::kForward, {x, nullptr, w, nullptr, convolution, y, nullptr},
                returned, results);
}

cudnnStatus_t WorkspaceForward(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                               cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t convolution,
                               cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,
                               size_t* bytes) {
  return Sized(TheReal().cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, convolution, y,
                                                                 algorithm, bytes),
               handle, Direction::kForward, {x, nullptr, w, nullptr, convolution, y, nullptr},
               algorithm, bytes);
}

cudnnStatus_t ListBackwardData(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                               cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t convolution,
                               cudnnTensorDescriptor_t x, int requested, int* returned,
                               cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return Listed(TheReal().cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w, y, convolution, x,
                                                                      requested, returned, results),
                handle, Direction::kBackwardData, {x, nullptr, w, nullptr, convolution, y, nullptr},
                returned, results);
}

cudnnStatus_t FindBackwardData(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                               cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t convolution,
                               cudnnTensorDescriptor_t x, int requested, int* returned,
                               cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return Listed(TheReal().cudnnFindConvolutionBackwardDataAlgorithm(handle, w, y, convolution, x,
                                                                    requested, returned, results),
                handle, Direction::kBackwardData, {x, nullptr, w, nullptr, convolution, y, nullptr},
                returned, results);
}

cudnnStatus_t TryBackwardData(cudnnHandle_t handle, cudnnFilterDescriptor_t w, const void* w_data,
                              cudnnTensorDescriptor_t y, const void* y_data,
                              cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t x,
                              void* x_data, int requested, int* returned,
                              cudnnConvolutionBwdDataAlgoPerf_t* results, void* workspace,
                              size_t bytes) {
  if (AnyPageable(w_data, y_data, x_data)) {
    if (TheReal().cudnnGetConvolutionBackwardDataAlgorithm_v7 == nullptr) return RefuseTrial();
    return ListBackwardData(handle, w, y, convolution, x, requested, returned, results);
  }
  return Listed(TheReal().cudnnFindConvolutionBackwardDataAlgorithmEx(
                    handle, w, w_data, y, y_data, convolution, x, x_data, requested, returned,
                    results, workspace, bytes),
                handle, Direction::kBackwardData, {x, nullptr, w, nullptr, convolution, y, nullptr},
                returned, results);
}

cudnnStatus_t WorkspaceBackwardData(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                                    cudnnTensorDescriptor_t y,
                                    cudnnConvolutionDescriptor_t convolution,
                                    cudnnTensorDescriptor_t x,
                                    cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return Sized(TheReal().cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w, y, convolution, x,
                                                                      algorithm, bytes),
               handle, Direction::kBackwardData, {x, nullptr, w, nullptr, convolution, y, nullptr},
               algorithm, bytes);
}

cudnnStatus_t ListBackwardFilter(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                 cudnnTensorDescriptor_t y,
                                 cudnnConvolutionDescriptor_t convolution,
                                 cudnnFilterDescriptor_t w, int requested, int* returned,
                                 cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return Listed(TheReal().cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                    handle, x, y, convolution, w, requested, returned, results),
                handle, Direction::kBackwardFilter,
                {x, nullptr, w, nullptr, convolution, y, nullptr}, returned, results);
}

cudnnStatus_t FindBackwardFilter(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                 cudnnTensorDescriptor_t y,
                                 cudnnConvolutionDescriptor_t convolution,
                                 cudnnFilterDescriptor_t w, int requested, int* returned,
                                 cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return Listed(TheReal().cudnnFindConvolutionBackwardFilterAlgorithm(handle, x, y, convolution, w,
                                                                      requested, returned, results),
                handle, Direction::kBackwardFilter,
                {x, nullptr, w, nullptr, convolution, y, nullptr}, returned, results);
}

cudnnStatus_t TryBackwardFilter(cudnnHandle_t handle, cudnnTensorDescriptor_t x, const void* x_data,
                                cudnnTensorDescriptor_t y, const void* y_data,
                                cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t w,
                                void* w_data, int requested, int* returned,
                                cudnnConvolutionBwdFilterAlgoPerf_t* results, void* workspace,
                                size_t bytes) {
  if (AnyPageable(x_data, y_data, w_data)) {
    if (TheReal().cudnnGetConvolutionBackwardFilterAlgorithm_v7 == nullptr) return RefuseTrial();
    return ListBackwardFilter(handle, x, y, convolution, w, requested, returned, results);
  }
  return Listed(TheReal().cudnnFindConvolutionBackwardFilterAlgorithmEx(
                    handle, x, x_data, y, y_data, convolution, w, w_data, requested, returned,
                    results, workspace, bytes),
                handle, Direction::kBackwardFilter,
                {x, nullptr, w, nullptr, convolution, y, nullptr}, returned, results);
}

cudnnStatus_t WorkspaceBackwardFilter(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                                      cudnnTensorDescriptor_t y,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnFilterDescriptor_t w,
                                      cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  return Sized(TheReal().cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x, y, convolution,
                                                                        w, algorithm, bytes),
               handle, Direction::kBackwardFilter,
               {x, nullptr, w, nullptr, convolution, y, nullptr}, algorithm, bytes);
}

}  // namespace

void ServeTakenAlgorithms(Served* served) {
  OOC_SERVE(served, cudnnGetConvolutionForwardAlgorithm_v7, ListForward);
  OOC_SERVE(served, cudnnFindConvolutionForwardAlgorithm, FindForward);
  OOC_SERVE(served, cudnnFindConvolutionForwardAlgorithmEx, TryForward);
  OOC_SERVE(served, cudnnGetConvolutionForwardWorkspaceSize, WorkspaceForward);
  OOC_SERVE(served, cudnnGetConvolutionBackwardDataAlgorithm_v7, ListBackwardData);
  OOC_SERVE(served, cudnnFindConvolutionBackwardDataAlgorithm, FindBackwardData);
  OOC_SERVE(served, cudnnFindConvolutionBackwardDataAlgorithmEx, TryBackwardData);
  OOC_SERVE(served, cudnnGetConvolutionBackwardDataWorkspaceSize, WorkspaceBackwardData);
  OOC_SERVE(served, cudnnGetConvolutionBackwardFilterAlgorithm_v7, ListBackwardFilter);
  OOC_SERVE(served, cudnnFindConvolutionBackwardFilterAlgorithm, FindBackwardFilter);
  OOC_SERVE(served, cudnnFindConvolutionBackwardFilterAlgorithmEx, TryBackwardFilter);
  OOC_SERVE(served, cudnnGetConvolutionBackwardFilterWorkspaceSize, WorkspaceBackwardFilter);
}

}  // namespace oocdnn::shim
