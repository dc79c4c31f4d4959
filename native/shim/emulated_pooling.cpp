// Pooling where there is no GPU: descriptors, forward and backward.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "shim/descriptors.hpp"
#include "shim/elements.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

using Pooling = cudnnPoolingDescriptor_t;
using Tensor = cudnnTensorDescriptor_t;
constexpr int kSpatialMax = CUDNN_DIM_MAX - 2;

cudnnStatus_t SetNd(Pooling pooling, cudnnPoolingMode_t mode, cudnnNanPropagation_t nans, int rank,
                    const int* window, const int* pad, const int* stride) {
  OOC_NEED(pooling != nullptr, "the descriptor is null");
  OOC_NEED(mode >= CUDNN_POOLING_MAX && mode <= CUDNN_POOLING_MAX_DETERMINISTIC,
           "there is no pooling %d", mode);
  OOC_NEED(nans == CUDNN_NOT_PROPAGATE_NAN || nans == CUDNN_PROPAGATE_NAN,
           "there is no way %d with NaNs", nans);
  OOC_NEED(rank > 0, "%d spatial axes", rank);
  if (rank > kSpatialMax) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "%d spatial axes; there are at most %d", rank,
                  kSpatialMax);
  }
  OOC_NEED(window != nullptr && pad != nullptr && stride != nullptr,
           "window, padding or stride is missing (null)");
  for (int i = 0; i < rank; ++i) {
    OOC_NEED(window[i] > 0 && stride[i] > 0, "axis %d has the window %d and the stride %d", i,
             window[i], stride[i]);
  }
  pooling->mode = mode;
  pooling->nans = nans;
  pooling->rank = rank;
  pooling->window = AxesOf(rank, window);
  pooling->pad = AxesOf(rank, pad);
  pooling->stride = AxesOf(rank, stride);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Set2d(Pooling pooling, cudnnPoolingMode_t mode, cudnnNanPropagation_t nans,
                    int window_h, int window_w, int pad_h, int pad_w, int stride_h, int stride_w) {
  const int window[] = {window_h, window_w}, pad[] = {pad_h, pad_w};
  const int stride[] = {stride_h, stride_w};
  return SetNd(pooling, mode, nans, 2, window, pad, stride);
}

cudnnStatus_t GetNd(Pooling pooling, int requested, cudnnPoolingMode_t* mode,
                    cudnnNanPropagation_t* nans, int* rank, int* window, int* pad, int* stride) {
  OOC_NEED(pooling != nullptr, "the descriptor is null");
  if (requested > kSpatialMax) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, "%d spatial axes; there are at most %d", requested,
                  kSpatialMax);
  }
  Give(pooling->mode, mode);
  Give(pooling->nans, nans);
  Give(pooling->rank, rank);
  OOC_CUDNN_TRY(Give(pooling->window, pooling->rank, requested, window));
  OOC_CUDNN_TRY(Give(pooling->pad, pooling->rank, requested, pad));
  return Give(pooling->stride, pooling->rank, requested, stride);
}

cudnnStatus_t Get2d(Pooling pooling, cudnnPoolingMode_t* mode, cudnnNanPropagation_t* nans,
                    int* window_h, int* window_w, int* pad_h, int* pad_w, int* stride_h,
                    int* stride_w) {
  int window[2] = {}, pad[2] = {}, stride[2] = {};
  OOC_CUDNN_TRY(GetNd(pooling, 2, mode, nans, nullptr, window, pad, stride));
  Give(window[0], window_h);
  Give(window[1], window_w);
  Give(pad[0], pad_h);
  Give(pad[1], pad_w);
  Give(stride[0], stride_h);
  Give(stride[1], stride_w);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t OutputOf(const cudnnPoolingStruct& pooling, const TensorValue& x, Axes* out) {
  OOC_NEED(x.rank == pooling.rank + 2, "%d axes, but %d spatial ones are pooled", x.rank,
           pooling.rank);
  *out = x.dims;
  for (int i = 0; i < pooling.rank; ++i) {
    const int64_t room = x.dims[2 + i] + 2 * pooling.pad[i] - pooling.window[i];
    OOC_NEED(room >= 0, "the window does not fit on axis %d", 2 + i);
    (*out)[2 + i] = room / pooling.stride[i] + 1;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t GetOutputNd(Pooling pooling, Tensor input, int rank, int* dims) {
  OOC_NEED(pooling != nullptr && input != nullptr && dims != nullptr,
           "a descriptor or the place is null");
  OOC_NEED(rank == input->value.rank, "%d extents of a tensor with %d axes", rank,
           input->value.rank);
  Axes out{};
  OOC_CUDNN_TRY(OutputOf(*pooling, input->value, &out));
  return Give(out, rank, rank, dims);
}

cudnnStatus_t GetOutput2d(Pooling pooling, Tensor input, int* n, int* c, int* h, int* w) {
  int dims[4] = {};
  OOC_CUDNN_TRY(GetOutputNd(pooling, input, 4, dims));
  Give(dims[0], n);
  Give(dims[1], c);
  Give(dims[2], h);
  Give(dims[3], w);
  return CUDNN_STATUS_SUCCESS;
}

// The part of one window that lies within the tensor: where it begins, how far it goes, the offset
// of its first element.
struct Window {
  Axes begin{}, extent{};
  int64_t offset = 0, elements = 1;
};

Window WindowAt(const cudnnPoolingStruct& pooling, const TensorValue& x, const Axes& index) {
  Window window;
  window.extent[0] = window.extent[1] = 1;
  window.offset = index[0] * x.stride[0] + index[1] * x.stride[1];
  for (int i = 0; i < pooling.rank; ++i) {
    const int64_t first = index[2 + i] * pooling.stride[i] - pooling.pad[i];
    const int64_t begin = std::max<int64_t>(first, 0);
    const int64_t end = std::min(first + pooling.window[i], x.dims[2 + i]);
    window.extent[2 + i] = std::max<int64_t>(end - begin, 0);
    window.elements *= window.extent[2 + i];
    window.offset += begin * x.stride[2 + i];
  }
  return window;
}

bool IsMax(const cudnnPoolingStruct& pooling) {
  return pooling.mode == CUDNN_POOLING_MAX || pooling.mode == CUDNN_POOLING_MAX_DETERMINISTIC;
}

// What an average divides by.
double Divisor(const cudnnPoolingStruct& pooling, const Window& window) {
  if (pooling.mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING) {
    return static_cast<double>(window.elements);
  }
  double size = 1.0;
  for (int i = 0; i < pooling.rank; ++i) size *= static_cast<double>(pooling.window[i]);
  return size;
}

// The largest element and its offset, the first of equals; a NaN wins or counts as the least.
std::pair<double, int64_t> Largest(const cudnnPoolingStruct& pooling, const TensorArgument& x,
                                   const Window& window) {
  double best = -std::numeric_limits<double>::infinity();
  int64_t winner = -1;
  Walk<1>(x.value.rank, window.extent, {x.value.stride}, [&](const auto& at, const Axes&) {
    const double value = Load(x, window.offset + at[0]);
    const bool nan_wins =
        std::isnan(value) && pooling.nans == CUDNN_PROPAGATE_NAN && !std::isnan(best);
    if (winner < 0 || value > best || nan_wins) {
      best = std::isnan(value) && !nan_wins ? best : value;
      winner = window.offset + at[0];
    }
  });
  return {best, winner};
}

double Pooled(const cudnnPoolingStruct& pooling, const TensorArgument& x, const Window& window) {
  if (window.elements == 0) return 0.0;
  if (IsMax(pooling)) return Largest(pooling, x, window).first;
  double sum = 0.0;
  Walk<1>(x.value.rank, window.extent, {x.value.stride},
          [&](const auto& at, const Axes&) { sum += Load(x, window.offset + at[0]); });
  return sum / Divisor(pooling, window);
}

cudnnStatus_t CheckOutput(const cudnnPoolingStruct& pooling, const TensorValue& x,
                          const TensorValue& y) {
  Axes out{};
  OOC_CUDNN_TRY(OutputOf(pooling, x, &out));
  OOC_NEED(y.rank == x.rank && y.dims == out, "y does not have the extents of the pooled x");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Forward(cudnnHandle_t handle, Pooling pooling, const void* alpha, Tensor x_desc,
                      const void* x_data, const void* beta, Tensor y_desc, void* y_data) {
  return Serve([&] {
    TensorArgument x, y;
    OOC_CUDNN_TRY(CheckCall(handle, alpha, beta));
    OOC_NEED(pooling != nullptr, "the descriptor of the pooling is null");
    OOC_CUDNN_TRY(TakeTensor("x", x_desc, x_data, &x));
    OOC_CUDNN_TRY(TakeTensor("y", y_desc, y_data, &y));
    OOC_CUDNN_TRY(CheckOutput(*pooling, x.value, y.value));
    const Blend blend{ScalarOf(alpha, y.value.dtype), ScalarOf(beta, y.value.dtype)};
    Walk<1>(y.value.rank, y.value.dims, {y.value.stride}, [&](const auto& at, const Axes& index) {
      blend(y, at[0], Pooled(*pooling, x, WindowAt(*pooling, x.value, index)));
    });
    return CUDNN_STATUS_SUCCESS;
  });
}

// What one output's gradient adds to the sums of dx, which have x's order of a dense tensor.
void Spread(const cudnnPoolingStruct& pooling, const TensorArgument& x, const Axes& index,
            double gradient, const TensorArgument& sums) {
  const Window window = WindowAt(pooling, x.value, index);
  if (window.elements == 0) return;
  const Window into = WindowAt(pooling, sums.value, index);
  double* const out = static_cast<double*>(sums.data) + into.offset;
  if (!IsMax(pooling)) {
    const double share = gradient / Divisor(pooling, window);
    Walk<1>(x.value.rank, window.extent, {sums.value.stride},
            [&](const auto& at, const Axes&) { out[at[0]] += share; });
    return;
  }
  const int64_t winner = Largest(pooling, x, window).second;
  Walk<2>(x.value.rank, window.extent, {x.value.stride, sums.value.stride},
          [&](const auto& at, const Axes&) {
            if (window.offset + at[0] == winner) out[at[1]] += gradient;
          });
}

cudnnStatus_t Backward(cudnnHandle_t handle, Pooling pooling, const void* alpha, Tensor y_desc,
                       const void* y_data, Tensor dy_desc, const void* dy_data, Tensor x_desc,
                       const void* x_data, const void* beta, Tensor dx_desc, void* dx_data) {
  return Serve([&] {
    TensorArgument x, y, dx, dy;
    OOC_CUDNN_TRY(CheckCall(handle, alpha, beta));
    OOC_NEED(pooling != nullptr, "the descriptor of the pooling is null");
    OOC_CUDNN_TRY(TakeTensor("x", x_desc, x_data, &x));
    OOC_CUDNN_TRY(TakeTensor("y", y_desc, y_data, &y));
    OOC_CUDNN_TRY(TakeTensor("dy", dy_desc, dy_data, &dy));
    OOC_CUDNN_TRY(TakeTensor("dx", dx_desc, dx_data, &dx));
    OOC_CUDNN_TRY(CheckOutput(*pooling, x.value, y.value));
    OOC_NEED(dy.value.SameShape(y.value) && dx.value.SameShape(x.value),
             "dy is not of y's extents, or dx not of x's");
    TensorValue dense = x.value;
    dense.dtype = CUDNN_DATA_DOUBLE;
    dense.stride = DenseStride(CUDNN_TENSOR_NCHW, x.value.rank, x.value.dims);
    const int64_t bytes = DenseBytes(dense.dtype, dense.rank, dense.dims);
    OOC_CUDNN_TRY(CheckBytes(bytes));
    std::vector<double> room(static_cast<size_t>(bytes) / sizeof(double), 0.0);
    const TensorArgument sums{dense, room.data()};
    Walk<1>(dy.value.rank, dy.value.dims, {dy.value.stride},
            [&](const auto& at, const Axes& index) {
              Spread(*pooling, x, index, Load(dy, at[0]), sums);
            });
    const Blend blend{ScalarOf(alpha, dx.value.dtype), ScalarOf(beta, dx.value.dtype)};
    Walk<2>(dx.value.rank, dx.value.dims, {dense.stride, dx.value.stride},
            [&](const auto& at, const Axes&) { blend(dx, at[1], Load(sums, at[0])); });
    return CUDNN_STATUS_SUCCESS;
  });
}

}  // namespace

void ServePooling(Served* served) {
  OOC_SERVE(served, cudnnCreatePoolingDescriptor, Create<cudnnPoolingStruct>);
  OOC_SERVE(served, cudnnDestroyPoolingDescriptor, Destroy<cudnnPoolingStruct>);
  OOC_SERVE(served, cudnnSetPooling2dDescriptor, Set2d);
  OOC_SERVE(served, cudnnGetPooling2dDescriptor, Get2d);
  OOC_SERVE(served, cudnnSetPoolingNdDescriptor, SetNd);
  OOC_SERVE(served, cudnnGetPoolingNdDescriptor, GetNd);
  OOC_SERVE(served, cudnnGetPooling2dForwardOutputDim, GetOutput2d);
  OOC_SERVE(served, cudnnGetPoolingNdForwardOutputDim, GetOutputNd);
  OOC_SERVE(served, cudnnPoolingForward, Forward);
  OOC_SERVE(served, cudnnPoolingBackward, Backward);
}

}  // namespace oocdnn::shim
