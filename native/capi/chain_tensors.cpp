#include "capi/chain_tensors.hpp"

#include <algorithm>

#include "capi/translate.hpp"

namespace oocdnn {
namespace {

// A tensor of that shape which nobody has, in the memory order of `like`.
oocdnn_tensor NobodysTensor(const oocdnn_tensor& like, const int64_t* shape) {
  oocdnn_tensor tensor = oocdnn_dense_tensor(like.dtype, like.rank, shape, nullptr);
  const bool channels_last = like.rank > 2 && like.rank <= 5 && like.shape[1] > 1 &&
                             like.stride[1] < like.stride[like.rank - 1];
  if (!channels_last) return tensor;
  int64_t next = 1;
  tensor.stride[1] = next;
  next *= std::max<int64_t>(shape[1], 1);
  for (int32_t axis = like.rank - 1; axis >= 2; --axis) {
    tensor.stride[axis] = next;
    next *= std::max<int64_t>(shape[axis], 1);
  }
  tensor.stride[0] = next;
  return tensor;
}

}  // namespace

Result<oocdnn_tensor> ResultOf(const oocdnn_convolution& link, const oocdnn_tensor& x,
                               const oocdnn_tensor* w) {
  const int32_t rank = link.rank + 2;
  if (link.rank < 1 || link.rank > 3 || x.rank != rank || w == nullptr || w->rank != rank) {
    return Error(Code::kInvalidProblem, "x and w must have as many spatial axes as the call, %d",
                 link.rank);
  }
  const Pool pool = PoolOf(link);
  int64_t shape[5] = {x.shape[0], w->shape[0]};
  for (int32_t a = 2; a < rank; ++a) {
    const int s = 3 - link.rank + a - 2;
    if (link.stride[s] < 1 || link.dilation[s] < 1 || w->shape[a] < 1) {
      return Error(Code::kInvalidProblem, "a stride, dilation or filter extent below 1");
    }
    const int64_t y = OutputExtent(x.shape[a], link.pad_before[s], link.pad_after[s], w->shape[a],
                                   link.stride[s], link.dilation[s]);
    shape[a] = pool.pools() ? pool.OutExtent(s, y) : y;
    if (shape[a] < 1) return Error(Code::kInvalidProblem, "its result would be empty");
  }
  return NobodysTensor(x, shape);
}

}  // namespace oocdnn
