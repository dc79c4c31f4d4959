// Convolution descriptors of our own.
#include "shim/descriptors.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

using Convolution = cudnnConvolutionDescriptor_t;
constexpr int kSpatialMax = CUDNN_DIM_MAX - 2;

cudnnStatus_t SetNd(Convolution convolution, int rank, const int* pad, const int* stride,
                    const int* dilation, cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  OOC_NEED(convolution != nullptr, "the descriptor is null");
  OOC_NEED(rank >= 0, "%d spatial axes", rank);
  if (rank > kSpatialMax) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "%d spatial axes; there are at most %d", rank,
                  kSpatialMax);
  }
  OOC_NEED(pad != nullptr && stride != nullptr && dilation != nullptr,
           "padding, stride or dilation is missing (null)");
  for (int i = 0; i < rank; ++i) {
    OOC_NEED(pad[i] >= 0, "the padding of axis %d is %d", i, pad[i]);
    OOC_NEED(stride[i] > 0, "the stride of axis %d is %d", i, stride[i]);
    OOC_NEED(dilation[i] > 0, "the dilation of axis %d is %d", i, dilation[i]);
  }
  OOC_NEED(mode == CUDNN_CONVOLUTION || mode == CUDNN_CROSS_CORRELATION, "there is no mode %d",
           mode);
  const bool computes = compute == CUDNN_DATA_FLOAT || compute == CUDNN_DATA_DOUBLE ||
                        compute == CUDNN_DATA_HALF || compute == CUDNN_DATA_INT32 ||
                        compute == CUDNN_DATA_FAST_FLOAT_FOR_FP8;
  OOC_NEED(computes, "nothing computes in the type %d", compute);
  ConvolutionValue& value = convolution->value;
  value.rank = rank;
  value.pad = AxesOf(rank, pad);
  value.pad_after = value.pad;
  value.stride = AxesOf(rank, stride);
  value.dilation = AxesOf(rank, dilation);
  value.mode = mode;
  value.compute = compute;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Set2d(Convolution convolution, int pad_h, int pad_w, int u, int v, int dilation_h,
                    int dilation_w, cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
  const int pad[] = {pad_h, pad_w}, stride[] = {u, v}, dilation[] = {dilation_h, dilation_w};
  return SetNd(convolution, 2, pad, stride, dilation, mode, compute);
}

cudnnStatus_t GetNd(Convolution convolution, int requested, int* rank, int* pad, int* stride,
                    int* dilation, cudnnConvolutionMode_t* mode, cudnnDataType_t* compute) {
  OOC_NEED(convolution != nullptr, "the descriptor is null");
  if (requested > kSpatialMax) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "%d spatial axes; there are at most %d", requested,
                  kSpatialMax);
  }
  const ConvolutionValue& value = convolution->value;
  Give(value.rank, rank);
  OOC_CUDNN_TRY(Give(value.pad, value.rank, requested, pad));
  OOC_CUDNN_TRY(Give(value.stride, value.rank, requested, stride));
  OOC_CUDNN_TRY(Give(value.dilation, value.rank, requested, dilation));
  Give(value.mode, mode);
  Give(value.compute, compute);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Get2d(Convolution convolution, int* pad_h, int* pad_w, int* u, int* v,
                    int* dilation_h, int* dilation_w, cudnnConvolutionMode_t* mode,
                    cudnnDataType_t* compute) {
  int pad[2] = {}, stride[2] = {}, dilation[2] = {};
  OOC_CUDNN_TRY(GetNd(convolution, 2, nullptr, pad, stride, dilation, mode, compute));
  Give(pad[0], pad_h);
  Give(pad[1], pad_w);
  Give(stride[0], u);
  Give(stride[1], v);
  Give(dilation[0], dilation_h);
  Give(dilation[1], dilation_w);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetGroups(Convolution convolution, int groups) {
  OOC_NEED(convolution != nullptr && groups >= 1, "%d groups, or the descriptor is null", groups);
  convolution->value.groups = groups;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetGroups(Convolution convolution, int* groups) {
  OOC_NEED(convolution != nullptr && groups != nullptr, "the descriptor or the place is null");
  *groups = convolution->value.groups;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetMath(Convolution convolution, cudnnMathType_t math) {
  OOC_NEED(convolution != nullptr, "the descriptor is null");
  OOC_NEED(math >= CUDNN_DEFAULT_MATH && math <= CUDNN_FMA_MATH, "there is no math type %d", math);
  convolution->value.math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetMath(Convolution convolution, cudnnMathType_t* math) {
  OOC_NEED(convolution != nullptr && math != nullptr, "the descriptor or the place is null");
  *math = convolution->value.math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetReorder(Convolution convolution, cudnnReorderType_t reorder) {
  OOC_NEED(convolution != nullptr, "the descriptor is null");
  OOC_NEED(reorder == CUDNN_DEFAULT_REORDER || reorder == CUDNN_NO_REORDER,
           "there is no reorder type %d", reorder);
  convolution->value.reorder = reorder;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetReorder(Convolution convolution, cudnnReorderType_t* reorder) {
  OOC_NEED(convolution != nullptr && reorder != nullptr, "the descriptor or the place is null");
  *reorder = convolution->value.reorder;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetOutputNd(Convolution convolution, cudnnTensorDescriptor_t input,
                          cudnnFilterDescriptor_t filter, int rank, int* dims) {
  OOC_NEED(convolution != nullptr && input != nullptr && filter != nullptr && dims != nullptr,
           "a descriptor or the place is null");
  return OutputExtents(convolution->value, input->value, filter->value, rank, dims);
}

cudnnStatus_t GetOutput2d(Convolution convolution, cudnnTensorDescriptor_t input,
                          cudnnFilterDescriptor_t filter, int* n, int* c, int* h, int* w) {
  int dims[4] = {};
  OOC_CUDNN_TRY(GetOutputNd(convolution, input, filter, 4, dims));
  Give(dims[0], n);
  Give(dims[1], c);
  Give(dims[2], h);
  Give(dims[3], w);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t OutputExtents(const ConvolutionValue& value, const TensorValue& x,
                            const FilterValue& w, int rank, int* dims) {
  OOC_NEED(value.rank == w.rank - 2 && x.rank == w.rank,
           "the input has %d axes, the filter %d, the convolution %d spatial ones", x.rank, w.rank,
           value.rank);
  OOC_NEED(rank >= 0 && rank <= x.rank, "%d extents of a tensor with %d axes", rank, x.rank);
  OOC_NEED(x.dims[1] == value.groups * w.dims[1],
           "the input has %lld channels, the filter %lld in each of %d groups",
           static_cast<long long>(x.dims[1]), static_cast<long long>(w.dims[1]), value.groups);
  Axes out = {x.dims[0], w.dims[0]};
  for (int i = 2; i < rank; ++i) {
    const int s = i - 2;
    const int64_t room = x.dims[i] + 2 * value.pad[s] - (w.dims[i] - 1) * value.dilation[s] - 1;
    OOC_NEED(room >= 0, "the filter does not fit on axis %d", i);
    out[i] = room / value.stride[s] + 1;
  }
  return Give(out, rank, rank, dims);
}

void ServeConvolutionDescriptors(Served* served) {
  OOC_SERVE(served, cudnnCreateConvolutionDescriptor, Create<cudnnConvolutionStruct>);
  OOC_SERVE(served, cudnnDestroyConvolutionDescriptor, Destroy<cudnnConvolutionStruct>);
  OOC_SERVE(served, cudnnSetConvolution2dDescriptor, Set2d);
  OOC_SERVE(served, cudnnGetConvolution2dDescriptor, Get2d);
  OOC_SERVE(served, cudnnSetConvolutionNdDescriptor, SetNd);
  OOC_SERVE(served, cudnnGetConvolutionNdDescriptor, GetNd);
  OOC_SERVE(served, cudnnSetConvolutionGroupCount, SetGroups);
  OOC_SERVE(served, cudnnGetConvolutionGroupCount, GetGroups);
  OOC_SERVE(served, cudnnSetConvolutionMathType, SetMath);
  OOC_SERVE(served, cudnnGetConvolutionMathType, GetMath);
  OOC_SERVE(served, cudnnSetConvolutionReorderType, SetReorder);
  OOC_SERVE(served, cudnnGetConvolutionReorderType, GetReorder);
  OOC_SERVE(served, cudnnGetConvolution2dForwardOutputDim, GetOutput2d);
  OOC_SERVE(served, cudnnGetConvolutionNdForwardOutputDim, GetOutputNd);
}

}  // namespace oocdnn::shim
