// Algorithms and workspaces where there is no GPU: one algorithm for each direction, which needs no
// workspace. The queries check the problem as the convolution itself would.
#include "shim/convolve.hpp"
#include "shim/descriptors.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

constexpr float kNotTimed = -1.0F;

// The types that differ from direction to direction.
struct ForwardKind {
  using Performance = cudnnConvolutionFwdAlgoPerf_t;
  static constexpr Direction kDirection = Direction::kForward;
  static constexpr int kCount = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
  static constexpr auto kAlgorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
};
struct DataKind {
  using Performance = cudnnConvolutionBwdDataAlgoPerf_t;
  static constexpr Direction kDirection = Direction::kBackwardData;
  static constexpr int kCount = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
  static constexpr auto kAlgorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
};
struct FilterKind {
  using Performance = cudnnConvolutionBwdFilterAlgoPerf_t;
  static constexpr Direction kDirection = Direction::kBackwardFilter;
  static constexpr int kCount = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT;
  static constexpr auto kAlgorithm = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
};

// The descriptors of one problem, in the order x, w, y whatever the direction.
struct Descriptors {
  cudnnHandle_t handle;
  cudnnTensorDescriptor_t x;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t convolution;
  cudnnTensorDescriptor_t y;
};

cudnnStatus_t CheckProblem(const Descriptors& of, Direction direction) {
  OOC_NEED(of.handle != nullptr, "the handle is null; cudnnCreate makes one");
  OOC_NEED(of.x != nullptr && of.w != nullptr && of.convolution != nullptr && of.y != nullptr,
           "a descriptor is null");
  ConvolutionCall call;
  call.direction = direction;
  call.x.value = of.x->value;
  call.w = of.w->value;
  call.convolution = of.convolution->value;
  call.y.value = of.y->value;
  return Check(call);
}

template <class Kind>
cudnnStatus_t Count(cudnnHandle_t handle, int* count) {
  OOC_NEED(handle != nullptr && count != nullptr, "the handle or the place is null");
  *count = Kind::kCount;
  return CUDNN_STATUS_SUCCESS;
}

template <class Kind>
cudnnStatus_t List(const Descriptors& of, int requested, int* returned,
                   typename Kind::Performance* results) {
  return Serve([&] {
    OOC_NEED(requested > 0 && returned != nullptr && results != nullptr,
             "%d algorithms asked for, or a place for them is null", requested);
    OOC_CUDNN_TRY(CheckProblem(of, Kind::kDirection));
    *results = {Kind::kAlgorithm,    CUDNN_STATUS_SUCCESS,       kNotTimed, 0,
                CUDNN_DETERMINISTIC, of.convolution->value.math, {}};
    *returned = 1;
    return CUDNN_STATUS_SUCCESS;
  });
}

template <class Kind>
cudnnStatus_t Workspace(const Descriptors& of, int algorithm, size_t* bytes) {
  return Serve([&] {
    OOC_NEED(bytes != nullptr, "the place for the size is null");
    OOC_NEED(algorithm >= 0 && algorithm < Kind::kCount, "there is no algorithm %d", algorithm);
    OOC_CUDNN_TRY(CheckProblem(of, Kind::kDirection));
    *bytes = 0;
    return CUDNN_STATUS_SUCCESS;
  });
}

// cuDNN's parameter lists.
cudnnStatus_t ListForward(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                          cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t convolution,
                          cudnnTensorDescriptor_t y, int requested, int* returned,
                          cudnnConvolutionFwdAlgoPerf_t* results) {
  return List<ForwardKind>({handle, x, w, convolution, y}, requested, returned, results);
}

cudnnStatus_t ListData(cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y,
                       cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t x,
                       int requested, int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return List<DataKind>({handle, x, w, convolution, y}, requested, returned, results);
}

cudnnStatus_t ListFilter(cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y,
                         cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t w,
                         int requested, int* returned,
                         cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return List<FilterKind>({handle, x, w, convolution, y}, requested, returned, results);
}

cudnnStatus_t TryForward(cudnnHandle_t handle, cudnnTensorDescriptor_t x, const void* /*x*/,
                         cudnnFilterDescriptor_t w, const void* /*w*/,
                         cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y,
                         void* /*y*/, int requested, int* returned,
                         cudnnConvolutionFwdAlgoPerf_t* results, void* /*workspace*/,
                         size_t /*bytes*/) {
  return List<ForwardKind>({handle, x, w, convolution, y}, requested, returned, results);
}

cudnnStatus_t TryData(cudnnHandle_t handle, cudnnFilterDescriptor_t w, const void* /*w*/,
                      cudnnTensorDescriptor_t y, const void* /*y*/,
                      cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t x,
                      void* /*x*/, int requested, int* returned,
                      cudnnConvolutionBwdDataAlgoPerf_t* results, void* /*workspace*/,
                      size_t /*bytes*/) {
  return List<DataKind>({handle, x, w, convolution, y}, requested, returned, results);
}

cudnnStatus_t TryFilter(cudnnHandle_t handle, cudnnTensorDescriptor_t x, const void* /*x*/,
                        cudnnTensorDescriptor_t y, const void* /*y*/,
                        cudnnConvolutionDescriptor_t convolution, cudnnFilterDescriptor_t w,
                        void* /*w*/, int requested, int* returned,
                        cudnnConvolutionBwdFilterAlgoPerf_t* results, void* /*workspace*/,
                        size_t /*bytes*/) {
  return List<FilterKind>({handle, x, w, convolution, y}, requested, returned, results);
}

cudnnStatus_t WorkspaceForward(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                               cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t convolution,
                               cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,
                               size_t* bytes) {
  return Workspace<ForwardKind>({handle, x, w, convolution, y}, algorithm, bytes);
}

cudnnStatus_t WorkspaceData(cudnnHandle_t handle, cudnnFilterDescriptor_t w,
                            cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t convolution,
                            cudnnTensorDescriptor_t x, cudnnConvolutionBwdDataAlgo_t algorithm,
                            size_t* bytes) {
  return Workspace<DataKind>({handle, x, w, convolution, y}, algorithm, bytes);
}

cudnnStatus_t WorkspaceFilter(cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                              cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t convolution,
                              cudnnFilterDescriptor_t w, cudnnConvolutionBwdFilterAlgo_t algorithm,
                              size_t* bytes) {
  return Workspace<FilterKind>({handle, x, w, convolution, y}, algorithm, bytes);
}

}  // namespace

void ServeAlgorithms(Served* served) {
  OOC_SERVE(served, cudnnGetConvolutionForwardAlgorithmMaxCount, Count<ForwardKind>);
  OOC_SERVE(served, cudnnGetConvolutionForwardAlgorithm_v7, ListForward);
  OOC_SERVE(served, cudnnFindConvolutionForwardAlgorithm, ListForward);
  OOC_SERVE(served, cudnnFindConvolutionForwardAlgorithmEx, TryForward);
  OOC_SERVE(served, cudnnGetConvolutionForwardWorkspaceSize, WorkspaceForward);
  OOC_SERVE(served, cudnnGetConvolutionBackwardDataAlgorithmMaxCount, Count<DataKind>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardDataAlgorithm_v7, ListData);
  OOC_SERVE(served, cudnnFindConvolutionBackwardDataAlgorithm, ListData);
  OOC_SERVE(served, cudnnFindConvolutionBackwardDataAlgorithmEx, TryData);
  OOC_SERVE(served, cudnnGetConvolutionBackwardDataWorkspaceSize, WorkspaceData);
  OOC_SERVE(served, cudnnGetConvolutionBackwardFilterAlgorithmMaxCount, Count<FilterKind>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardFilterAlgorithm_v7, ListFilter);
  OOC_SERVE(served, cudnnFindConvolutionBackwardFilterAlgorithm, ListFilter);
  OOC_SERVE(served, cudnnFindConvolutionBackwardFilterAlgorithmEx, TryFilter);
  OOC_SERVE(served, cudnnGetConvolutionBackwardFilterWorkspaceSize, WorkspaceFilter);
}

}  // namespace oocdnn::shim
