// The C function that runs a chain: what lies between two links is not the caller's, so its shapes
// follow from the links.
#include <algorithm>

#include "capi/context.hpp"
#include "capi/guard.hpp"
#include "capi/oocdnn.h"
#include "capi/translate.hpp"

using namespace oocdnn;  // NOLINT: this file is the C face of that namespace

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

// What a link writes, from what it reads.
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

Status NeedNone(const oocdnn_tensor* tensor, const char* name) {
  if (tensor == nullptr) return {};
  return Error(Code::kInvalidProblem, "%s is between two links and must be NULL", name);
}

// The links as problems, with what the caller has of them.
struct ChainArguments {
  std::vector<Problem> problems;
  std::vector<HostTensors> tensors;
};

class ChainTranslator {
 public:
  ChainTranslator(const oocdnn_convolution* links, const oocdnn_operands* operands, int64_t count,
                  Math math)
      : links_(links), operands_(operands), count_(count), math_(math) {}

  Result<ChainArguments> Run() {
    OOC_TRY(Need(operands_[0].x, "x of the first link"));
    x_ = *operands_[0].x;
    for (int64_t i = 0; i < count_; ++i) {
      OOC_TRY(Take(i).With(Format("link %lld of a chain", static_cast<long long>(i))));
    }
    return std::move(made_);
  }

 private:
  Status Take(int64_t i) {
    const bool last = i + 1 == count_;
    oocdnn_operands operands = operands_[i];
    oocdnn_tensor between{};
    if (i > 0) OOC_TRY(NeedNone(operands.x, "x"));
    operands.x = &x_;
    if (!last) {
      const bool pools = links_[i].pool.mode != OOCDNN_POOL_MODE_NONE;
      OOC_TRY(NeedNone(operands.y, "y"));
      OOC_TRY(NeedNone(operands.z, "z"));
      OOC_ASSIGN(between, ResultOf(links_[i], x_, operands.w));
      (pools ? operands.z : operands.y) = &between;
    }
    OOC_ASSIGN(const CallArguments link, Translate(&links_[i], &operands, math_));
    made_.problems.push_back(link.problem);
    made_.tensors.push_back(link.tensors);
    x_ = between;
    return {};
  }

  const oocdnn_convolution* links_;
  const oocdnn_operands* operands_;
  const int64_t count_;
  const Math math_;
  oocdnn_tensor x_{};
  ChainArguments made_;
};

}  // namespace

oocdnn_status oocdnn_run_chain(oocdnn_context* context, const oocdnn_convolution* links,
                               const oocdnn_operands* operands, int64_t count) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(context, "the context"));
    OOC_TRY(Need(links, "the links"));
    OOC_TRY(Need(operands, "the operands"));
    if (count < 1) return Error(Code::kInvalidProblem, "a chain without links");
    OOC_ASSIGN(const ChainArguments chain,
               ChainTranslator(links, operands, count, context->math).Run());
    const Progress progress = ProgressOf(links[0].progress, links[0].progress_user);
    return context->context->RunChain(chain.problems, chain.tensors, links[0].stream, progress,
                                      LimitOf(links[0]));
  });
}
