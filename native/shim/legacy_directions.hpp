// The directions of the legacy functions that list algorithms and size their workspaces.
#pragma once

#include "shim/legacy_read.hpp"
#include "shim/real.hpp"

namespace oocdnn::shim {

// A direction's functions take its descriptors in an order of their own: one, another, the
// convolution, the result's. Each list of them is read as x, w and y.
struct Forward {
  using First = cudnnTensorDescriptor_t;
  using Second = cudnnFilterDescriptor_t;
  using Last = cudnnTensorDescriptor_t;
  using Algorithm = cudnnConvolutionFwdAlgo_t;
  using Performance = cudnnConvolutionFwdAlgoPerf_t;
  static constexpr Direction kDirection = Direction::kForward;
  static constexpr int kCount = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
  static constexpr auto kAlgorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  static constexpr auto kList = &Real::cudnnGetConvolutionForwardAlgorithm_v7;
  static constexpr auto kFind = &Real::cudnnFindConvolutionForwardAlgorithm;
  static constexpr auto kTry = &Real::cudnnFindConvolutionForwardAlgorithmEx;
  static constexpr auto kSize = &Real::cudnnGetConvolutionForwardWorkspaceSize;
  static LegacyOperands Operands(First x, Second w, cudnnConvolutionDescriptor_t convolution,
                                 Last y) {
    return {x, nullptr, w, nullptr, convolution, y, nullptr};
  }
};

struct BackwardData {
  using First = cudnnFilterDescriptor_t;
  using Second = cudnnTensorDescriptor_t;
  using Last = cudnnTensorDescriptor_t;
  using Algorithm = cudnnConvolutionBwdDataAlgo_t;
  using Performance = cudnnConvolutionBwdDataAlgoPerf_t;
  static constexpr Direction kDirection = Direction::kBackwardData;
  static constexpr int kCount = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
  static constexpr auto kAlgorithm = CUDNN_CONVOLUTION_BWD_DATA_ALGO_1;
  static constexpr auto kList = &Real::cudnnGetConvolutionBackwardDataAlgorithm_v7;
  static constexpr auto kFind = &Real::cudnnFindConvolutionBackwardDataAlgorithm;
  static constexpr auto kTry = &Real::cudnnFindConvolutionBackwardDataAlgorithmEx;
  static constexpr auto kSize = &Real::cudnnGetConvolutionBackwardDataWorkspaceSize;
  static LegacyOperands Operands(First w, Second y, cudnnConvolutionDescriptor_t convolution,
                                 Last x) {
    return Forward::Operands(x, w, convolution, y);
  }
};

struct BackwardFilter {
  using First = cudnnTensorDescriptor_t;
  using Second = cudnnTensorDescriptor_t;
  using Last = cudnnFilterDescriptor_t;
  using Algorithm = cudnnConvolutionBwdFilterAlgo_t;
  using Performance = cudnnConvolutionBwdFilterAlgoPerf_t;
  static constexpr Direction kDirection = Direction::kBackwardFilter;
  static constexpr int kCount = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT;
  static constexpr auto kAlgorithm = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1;
  static constexpr auto kList = &Real::cudnnGetConvolutionBackwardFilterAlgorithm_v7;
  static constexpr auto kFind = &Real::cudnnFindConvolutionBackwardFilterAlgorithm;
  static constexpr auto kTry = &Real::cudnnFindConvolutionBackwardFilterAlgorithmEx;
  static constexpr auto kSize = &Real::cudnnGetConvolutionBackwardFilterWorkspaceSize;
  static LegacyOperands Operands(First x, Second y, cudnnConvolutionDescriptor_t convolution,
                                 Last w) {
    return Forward::Operands(x, w, convolution, y);
  }
};

inline cudnnStatus_t NeedPlaces(int requested, const int* returned, const void* results) {
  OOC_NEED(requested > 0 && returned != nullptr && results != nullptr,
           "%d algorithms asked for, or a place for them is null", requested);
  return CUDNN_STATUS_SUCCESS;
}

// One algorithm, which nobody has timed.
template <class D>
cudnnStatus_t GiveOne(size_t bytes, cudnnMathType_t math, int* returned,
                      typename D::Performance* results) {
  *results = {D::kAlgorithm, CUDNN_STATUS_SUCCESS, -1.0F, bytes, CUDNN_DETERMINISTIC, math, {}};
  *returned = 1;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace oocdnn::shim
