// Filter descriptors of our own.
#include "shim/descriptors.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

using Filter = cudnnFilterDescriptor_t;

cudnnStatus_t SetNd(Filter filter, cudnnDataType_t dtype, cudnnTensorFormat_t format, int rank,
                    const int* dims) {
  OOC_NEED(filter != nullptr, "the descriptor is null");
  OOC_NEED(rank > 2, "a filter has more than 2 axes, not %d", rank);
  if (rank > CUDNN_DIM_MAX) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "%d axes; there are at most %d", rank, CUDNN_DIM_MAX);
  }
  OOC_CUDNN_TRY(CheckType(dtype));
  OOC_NEED(format == CUDNN_TENSOR_NCHW || format == CUDNN_TENSOR_NHWC,
           "format %d does not go with this element type", format);
  OOC_NEED(dims != nullptr, "the extents are missing (null)");
  for (int i = 0; i < rank; ++i) OOC_NEED(dims[i] > 0, "axis %d has the extent %d", i, dims[i]);
  const Axes extents = AxesOf(rank, dims);
  OOC_CUDNN_TRY(CheckBytes(DenseBytes(dtype, rank, extents)));
  filter->value.dtype = dtype;
  filter->value.rank = rank;
  filter->value.dims = extents;
  filter->value.stride = DenseStride(format, rank, filter->value.dims);
  filter->format = format;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Set4d(Filter filter, cudnnDataType_t dtype, cudnnTensorFormat_t format, int k, int c,
                    int h, int w) {
  const int dims[] = {k, c, h, w};
  return SetNd(filter, dtype, format, 4, dims);
}

cudnnStatus_t GetNd(Filter filter, int requested, cudnnDataType_t* dtype,
                    cudnnTensorFormat_t* format, int* rank, int* dims) {
  OOC_NEED(filter != nullptr, "the descriptor is null");
  Give(filter->value.dtype, dtype);
  Give(filter->format, format);
  Give(filter->value.rank, rank);
  return Give(filter->value.dims, filter->value.rank, requested, dims);
}

cudnnStatus_t Get4d(Filter filter, cudnnDataType_t* dtype, cudnnTensorFormat_t* format, int* k,
                    int* c, int* h, int* w) {
  OOC_NEED(filter != nullptr, "the descriptor is null");
  int* const dims[] = {k, c, h, w};
  Give(filter->value.dtype, dtype);
  Give(filter->format, format);
  for (int i = 0; i < 4; ++i) Give(static_cast<int>(filter->value.dims[i]), dims[i]);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetSize(Filter filter, size_t* bytes) {
  OOC_NEED(filter != nullptr && bytes != nullptr, "the descriptor or the place is null");
  const FilterValue& value = filter->value;
  *bytes = static_cast<size_t>(DenseBytes(value.dtype, value.rank, value.dims));
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

void ServeFilters(Served* served) {
  OOC_SERVE(served, cudnnCreateFilterDescriptor, Create<cudnnFilterStruct>);
  OOC_SERVE(served, cudnnDestroyFilterDescriptor, Destroy<cudnnFilterStruct>);
  OOC_SERVE(served, cudnnSetFilter4dDescriptor, Set4d);
  OOC_SERVE(served, cudnnGetFilter4dDescriptor, Get4d);
  OOC_SERVE(served, cudnnSetFilterNdDescriptor, SetNd);
  OOC_SERVE(served, cudnnGetFilterNdDescriptor, GetNd);
  OOC_SERVE(served, cudnnGetFilterSizeInBytes, GetSize);
}

}  // namespace oocdnn::shim
