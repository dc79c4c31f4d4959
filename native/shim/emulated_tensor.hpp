// cuDNN's functions of tensor descriptors, on descriptors of our own.
#pragma once

#include "shim/descriptors.hpp"

namespace oocdnn::shim::own_tensor {

using Tensor = cudnnTensorDescriptor_t;

cudnnStatus_t SetNd(Tensor tensor, cudnnDataType_t dtype, int rank, const int* dims,
                    const int* stride);
cudnnStatus_t SetNdEx(Tensor tensor, cudnnTensorFormat_t format, cudnnDataType_t dtype, int rank,
                      const int* dims);
cudnnStatus_t Set4d(Tensor tensor, cudnnTensorFormat_t format, cudnnDataType_t dtype, int n, int c,
                    int h, int w);
cudnnStatus_t Set4dEx(Tensor tensor, cudnnDataType_t dtype, int n, int c, int h, int w,
                      int n_stride, int c_stride, int h_stride, int w_stride);
cudnnStatus_t GetNd(Tensor tensor, int requested, cudnnDataType_t* dtype, int* rank, int* dims,
                    int* stride);
cudnnStatus_t Get4d(Tensor tensor, cudnnDataType_t* dtype, int* n, int* c, int* h, int* w,
                    int* n_stride, int* c_stride, int* h_stride, int* w_stride);
cudnnStatus_t GetSize(Tensor tensor, size_t* bytes);

}  // namespace oocdnn::shim::own_tensor
