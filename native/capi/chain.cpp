// The C function that runs a chain: what lies between two links is not the caller's, so its shapes
// follow from the links.
#include <vector>

#include "capi/chain_tensors.hpp"
#include "capi/context.hpp"
#include "capi/guard.hpp"
#include "capi/oocdnn.h"
#include "capi/translate.hpp"
#include "geom/chain.hpp"

using namespace oocdnn;  // NOLINT: this file is the C face of that namespace

namespace {

Status NeedNone(const oocdnn_tensor* tensor, const char* name) {
  if (tensor == nullptr) return {};
  return Error(Code::kInvalidProblem, "%s is between two links and must be NULL", name);
}

static_assert(kFromX == OOCDNN_RESIDUAL_X && kFromOutside == OOCDNN_RESIDUAL_OPERAND);

// The program of the links, with the caller's tensors.
struct ChainArguments {
  Program chain;
  std::vector<OperandViews> tensors;
};

class ChainTranslator {
 public:
  ChainTranslator(const oocdnn_convolution* links, const oocdnn_operands* operands,
                  const int64_t* residuals, int64_t count, Math math)
      : links_(links), operands_(operands), residuals_(residuals), count_(count), math_(math) {}

  Result<ChainArguments> Run() {
    OOC_TRY(Need(operands_[0].x, "x of the first link"));
    passed_.push_back(*operands_[0].x);
    for (int64_t i = 0; i < count_; ++i) {
      OOC_TRY(Take(i).With(Format("link %lld of a chain", static_cast<long long>(i))));
    }
    OOC_ASSIGN(Program chain, MakeChain(problems_, sources_));
    return ChainArguments{std::move(chain), std::move(tensors_)};
  }

 private:
  Status Take(int64_t i) {
    const bool last = i + 1 == count_;
    oocdnn_operands operands = operands_[i];
    oocdnn_tensor between{};
    if (i > 0) OOC_TRY(NeedNone(operands.x, "x"));
    const oocdnn_tensor x = passed_.back();
    operands.x = &x;
    OOC_ASSIGN(const int64_t source, SourceOf(i, &operands));
    const oocdnn_tensor added =
        source == kFromOutside ? x : passed_[static_cast<size_t>(source + 1)];
    if (source != kFromOutside) operands.residual = &added;
    if (!last) {
      const bool pools = links_[i].pool.mode != OOCDNN_POOL_MODE_NONE;
      OOC_TRY(NeedNone(operands.y, "y"));
      OOC_TRY(NeedNone(operands.z, "z"));
      OOC_ASSIGN(between, ResultOf(links_[i], x, operands.w));
      (pools ? operands.z : operands.y) = &between;
    }
    OOC_ASSIGN(const CallArguments link, Translate(&links_[i], &operands, math_));
    problems_.push_back(link.problem);
    sources_.push_back(source);
    tensors_.push_back(link.tensors);
    passed_.push_back(between);
    return {};
  }

  // Where the link's residual comes from.
  [[nodiscard]] Result<int64_t> SourceOf(int64_t i, oocdnn_operands* operands) const {
    const int64_t source = residuals_ == nullptr ? kFromOutside : residuals_[i];
    if (source == kFromOutside) return source;
    if (source < kFromOutside || source >= i) {
      return Error(Code::kInvalidProblem,
                   "its residual is the result of link %lld; it must be an earlier one",
                   static_cast<long long>(source));
    }
    if (operands->residual == nullptr) return source;
    return Error(Code::kInvalidProblem, "it has a residual, and that of the chain; pass one");
  }

  const oocdnn_convolution* links_;
  const oocdnn_operands* operands_;
  const int64_t* residuals_;
  const int64_t count_;
  const Math math_;
  std::vector<oocdnn_tensor> passed_;  // x, and what each link writes for the next
  std::vector<Problem> problems_;
  std::vector<int64_t> sources_;  // of residuals
  std::vector<OperandViews> tensors_;
};

Result<ChainArguments> ArgumentsOf(const oocdnn_context* context, const oocdnn_convolution* links,
                                   const oocdnn_operands* operands, const int64_t* residuals,
                                   int64_t count) {
  OOC_TRY(Need(context, "the context"));
  OOC_TRY(Need(links, "the links"));
  OOC_TRY(Need(operands, "the operands"));
  OOC_TRY(NeedCount(count, "the number of links"));
  if (count < 1) return Error(Code::kInvalidProblem, "a chain without links");
  return ChainTranslator(links, operands, residuals, count, context->math).Run();
}

}  // namespace

oocdnn_status oocdnn_price_chain(oocdnn_context* context, const oocdnn_convolution* links,
                                 const oocdnn_operands* operands, const int64_t* residuals,
                                 int64_t count, double* seconds) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(seconds, "seconds"));
    OOC_ASSIGN(const ChainArguments chain, ArgumentsOf(context, links, operands, residuals, count));
    OOC_ASSIGN(*seconds, context->context->Price(chain.chain, chain.tensors, LimitOf(links[0])));
    return {};
  });
}

oocdnn_status oocdnn_run_chain(oocdnn_context* context, const oocdnn_convolution* links,
                               const oocdnn_operands* operands, const int64_t* residuals,
                               int64_t count) {
  return Guard([&]() -> Status {
    OOC_ASSIGN(const ChainArguments chain, ArgumentsOf(context, links, operands, residuals, count));
    const CallOn running(context);
    const Progress progress = ProgressOf(links[0].progress, links[0].progress_user);
    return context->context->Run(chain.chain, chain.tensors, links[0].stream, progress,
                                 LimitOf(links[0]));
  });
}
