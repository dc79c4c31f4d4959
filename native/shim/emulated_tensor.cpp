// Tensor descriptors of our own. Unlike cuDNN's they take tensors of 2^31 elements and more.
#include "shim/emulated_tensor.hpp"

#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

cudnnStatus_t CheckDims(int rank, const int* dims) {
  OOC_NEED(rank >= 2, "a tensor has at least 2 axes, not %d", rank);
  if (rank > CUDNN_DIM_MAX) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "%d axes; there are at most %d", rank, CUDNN_DIM_MAX);
  }
  OOC_NEED(dims != nullptr, "the extents are missing (null)");
  for (int i = 0; i < rank; ++i) OOC_NEED(dims[i] > 0, "axis %d has the extent %d", i, dims[i]);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

namespace own_tensor {

cudnnStatus_t SetNd(Tensor tensor, cudnnDataType_t dtype, int rank, const int* dims,
                    const int* stride) {
  OOC_NEED(tensor != nullptr, "the descriptor is null");
  OOC_CUDNN_TRY(CheckType(dtype));
  OOC_CUDNN_TRY(CheckDims(rank, dims));
  OOC_NEED(stride != nullptr, "the strides are missing (null)");
  for (int i = 0; i < rank; ++i) {
    OOC_NEED(stride[i] != 0 || dims[i] == 1, "axis %d has the stride 0", i);
  }
  TensorValue& value = tensor->value;
  value.dtype = dtype;
  value.rank = rank;
  value.dims = AxesOf(rank, dims);
  value.stride = AxesOf(rank, stride);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t SetNdEx(Tensor tensor, cudnnTensorFormat_t format, cudnnDataType_t dtype, int rank,
                      const int* dims) {
  OOC_NEED(tensor != nullptr, "the descriptor is null");
  OOC_NEED(format == CUDNN_TENSOR_NCHW || format == CUDNN_TENSOR_NHWC,
           "format %d does not go with this element type", format);
  OOC_CUDNN_TRY(CheckType(dtype));
  OOC_CUDNN_TRY(CheckDims(rank, dims));
  const Axes extents = AxesOf(rank, dims);
  OOC_CUDNN_TRY(CheckBytes(DenseBytes(dtype, rank, extents)));
  TensorValue& value = tensor->value;
  value.dtype = dtype;
  value.rank = rank;
  value.dims = extents;
  value.stride = DenseStride(format, rank, value.dims);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Set4d(Tensor tensor, cudnnTensorFormat_t format, cudnnDataType_t dtype, int n, int c,
                    int h, int w) {
  const int dims[] = {n, c, h, w};
  return SetNdEx(tensor, format, dtype, 4, dims);
}

cudnnStatus_t Set4dEx(Tensor tensor, cudnnDataType_t dtype, int n, int c, int h, int w,
                      int n_stride, int c_stride, int h_stride, int w_stride) {
  const int dims[] = {n, c, h, w}, stride[] = {n_stride, c_stride, h_stride, w_stride};
  return SetNd(tensor, dtype, 4, dims, stride);
}

cudnnStatus_t GetNd(Tensor tensor, int requested, cudnnDataType_t* dtype, int* rank, int* dims,
                    int* stride) {
  OOC_NEED(tensor != nullptr, "the descriptor is null");
  const TensorValue& value = tensor->value;
  Give(value.dtype, dtype);
  Give(value.rank, rank);
  OOC_CUDNN_TRY(Give(value.dims, value.rank, requested, dims));
  return Give(value.stride, value.rank, requested, stride);
}

cudnnStatus_t Get4d(Tensor tensor, cudnnDataType_t* dtype, int* n, int* c, int* h, int* w,
                    int* n_stride, int* c_stride, int* h_stride, int* w_stride) {
  OOC_NEED(tensor != nullptr, "the descriptor is null");
  int* const dims[] = {n, c, h, w};
  int* const stride[] = {n_stride, c_stride, h_stride, w_stride};
  OOC_NEED(dtype != nullptr, "the place for the element type is null");
  for (int i = 0; i < 4; ++i) {
    OOC_NEED(dims[i] != nullptr && stride[i] != nullptr, "a place for axis %d is null", i);
  }
  int extents[4] = {}, steps[4] = {};
  OOC_CUDNN_TRY(Give(tensor->value.dims, 4, 4, extents));
  OOC_CUDNN_TRY(Give(tensor->value.stride, 4, 4, steps));
  *dtype = tensor->value.dtype;
  for (int i = 0; i < 4; ++i) {
    *dims[i] = extents[i];
    *stride[i] = steps[i];
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetSize(Tensor tensor, size_t* bytes) {
  OOC_NEED(tensor != nullptr && bytes != nullptr, "the descriptor or the place is null");
  const int64_t size = SpanBytes(tensor->value);
  OOC_CUDNN_TRY(CheckBytes(size));
  *bytes = static_cast<size_t>(size);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace own_tensor

void ServeTensors(Served* served) {
  using namespace own_tensor;  // NOLINT(google-build-using-namespace): what is served is all of it
  OOC_SERVE(served, cudnnCreateTensorDescriptor, Create<cudnnTensorStruct>);
  OOC_SERVE(served, cudnnDestroyTensorDescriptor, Destroy<cudnnTensorStruct>);
  OOC_SERVE(served, cudnnSetTensor4dDescriptor, Set4d);
  OOC_SERVE(served, cudnnSetTensor4dDescriptorEx, Set4dEx);
  OOC_SERVE(served, cudnnGetTensor4dDescriptor, Get4d);
  OOC_SERVE(served, cudnnSetTensorNdDescriptor, SetNd);
  OOC_SERVE(served, cudnnSetTensorNdDescriptorEx, SetNdEx);
  OOC_SERVE(served, cudnnGetTensorNdDescriptor, GetNd);
  OOC_SERVE(served, cudnnGetTensorSizeInBytes, GetSize);
}

}  // namespace oocdnn::shim
