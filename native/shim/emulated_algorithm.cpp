// Algorithms and workspaces where there is no GPU: one algorithm for each direction, which needs no
// workspace. The queries check the problem as the convolution itself would.
#include "shim/descriptors.hpp"
#include "shim/legacy_directions.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

cudnnStatus_t CheckProblem(cudnnHandle_t handle, Direction direction, const LegacyOperands& of) {
  OOC_NEED(handle != nullptr, "the handle is null; cudnnCreate makes one");
  OOC_NEED(of.x_desc != nullptr && of.w_desc != nullptr && of.convolution != nullptr &&
               of.y_desc != nullptr,
           "a descriptor is null");
  ConvolutionCall call;
  call.direction = direction;
  call.x.value = of.x_desc->value;
  call.w = of.w_desc->value;
  call.convolution = of.convolution->value;
  call.y.value = of.y_desc->value;
  return Check(call);
}

template <class D>
cudnnStatus_t Count(cudnnHandle_t handle, int* count) {
  OOC_NEED(handle != nullptr && count != nullptr, "the handle or the place is null");
  *count = D::kCount;
  return CUDNN_STATUS_SUCCESS;
}

template <class D>
cudnnStatus_t List(cudnnHandle_t handle, typename D::First first, typename D::Second second,
                   cudnnConvolutionDescriptor_t convolution, typename D::Last last, int requested,
                   int* returned, typename D::Performance* results) {
  return Serve([&] {
    OOC_CUDNN_TRY(NeedPlaces(requested, returned, results));
    const LegacyOperands operands = D::Operands(first, second, convolution, last);
    OOC_CUDNN_TRY(CheckProblem(handle, D::kDirection, operands));
    return GiveOne<D>(0, convolution->value.math, returned, results);
  });
}

template <class D>
cudnnStatus_t Try(cudnnHandle_t handle, typename D::First first, const void*,
                  typename D::Second second, const void*, cudnnConvolutionDescriptor_t convolution,
                  typename D::Last last, void*, int requested, int* returned,
                  typename D::Performance* results, void* /*workspace*/, size_t /*bytes*/) {
  return List<D>(handle, first, second, convolution, last, requested, returned, results);
}

template <class D>
cudnnStatus_t Size(cudnnHandle_t handle, typename D::First first, typename D::Second second,
                   cudnnConvolutionDescriptor_t convolution, typename D::Last last,
                   typename D::Algorithm algorithm, size_t* bytes) {
  return Serve([&] {
    OOC_NEED(bytes != nullptr, "the place for the size is null");
    OOC_NEED(algorithm >= 0 && algorithm < D::kCount, "there is no algorithm %d", algorithm);
    const LegacyOperands operands = D::Operands(first, second, convolution, last);
    OOC_CUDNN_TRY(CheckProblem(handle, D::kDirection, operands));
    *bytes = 0;
    return CUDNN_STATUS_SUCCESS;
  });
}

}  // namespace

void ServeAlgorithms(Served* served) {
  OOC_SERVE(served, cudnnGetConvolutionForwardAlgorithmMaxCount, Count<Forward>);
  OOC_SERVE(served, cudnnGetConvolutionForwardAlgorithm_v7, List<Forward>);
  OOC_SERVE(served, cudnnFindConvolutionForwardAlgorithm, List<Forward>);
  OOC_SERVE(served, cudnnFindConvolutionForwardAlgorithmEx, Try<Forward>);
  OOC_SERVE(served, cudnnGetConvolutionForwardWorkspaceSize, Size<Forward>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardDataAlgorithmMaxCount, Count<BackwardData>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardDataAlgorithm_v7, List<BackwardData>);
  OOC_SERVE(served, cudnnFindConvolutionBackwardDataAlgorithm, List<BackwardData>);
  OOC_SERVE(served, cudnnFindConvolutionBackwardDataAlgorithmEx, Try<BackwardData>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardDataWorkspaceSize, Size<BackwardData>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardFilterAlgorithmMaxCount, Count<BackwardFilter>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardFilterAlgorithm_v7, List<BackwardFilter>);
  OOC_SERVE(served, cudnnFindConvolutionBackwardFilterAlgorithm, List<BackwardFilter>);
  OOC_SERVE(served, cudnnFindConvolutionBackwardFilterAlgorithmEx, Try<BackwardFilter>);
  OOC_SERVE(served, cudnnGetConvolutionBackwardFilterWorkspaceSize, Size<BackwardFilter>);
}

}  // namespace oocdnn::shim
