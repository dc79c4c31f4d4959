// The C function of a chain's gradients: builds the program of the forward links and their
// gradients. Tensors between its nodes are nobody's.
#include <optional>
#include <vector>

#include "capi/chain_tensors.hpp"
#include "capi/context.hpp"
#include "capi/guard.hpp"
#include "capi/oocdnn.h"
#include "capi/translate.hpp"
#include "geom/gradient_chain.hpp"

using namespace oocdnn;  // NOLINT: this file is the C face of that namespace

namespace {

struct GradientArguments {
  Program program;
  std::vector<OperandViews> tensors;  // by node
};

class GradientTranslator {
 public:
  GradientTranslator(const oocdnn_convolution* links, const oocdnn_operands* operands,
                     int64_t count, Math math)
      : links_(links), operands_(operands), count_(static_cast<size_t>(count)), math_(math) {}

  Result<GradientArguments> Run() {
    OOC_TRY(Need(operands_[0].input, "input, which is x, of the first link"));
    OOC_TRY(Need(operands_[count_ - 1].z, "z, which is dz, of the last link"));
    OOC_TRY(TakeForward());
    FindNeeds();
    for (size_t i = 0; i < count_; ++i) {
      OOC_TRY(TakeGradients(i).With(Format("link %zu of a chain", i)));
    }
    std::vector<TrainedLink> links;
    for (size_t i = 0; i < count_; ++i) {
      links.push_back({forward_[i].problem, {}, operands_[i].saved != nullptr});
      if (gradients_[i]) links.back().gradients = gradients_[i]->problem;
    }
    OOC_ASSIGN(GradientProgram built, MakeGradientChain(links));
    GradientArguments made{std::move(built.program), {}};
    for (size_t i = 0; i < made.program.size(); ++i) {
      const size_t link = made.program.LinkOf(i);
      made.tensors.push_back(built.gradients[i] ? gradients_[link]->tensors
                                                : forward_[link].tensors);
    }
    return made;
  }

 private:
  Status TakeForward() {
    x_.push_back(*operands_[0].input);
    for (size_t i = 0; i < count_; ++i) {
      OOC_TRY(TakeForward(i).With(Format("link %zu of a chain", i)));
    }
    return {};
  }

  Status TakeForward(size_t i) {
    const oocdnn_operands& given = operands_[i];
    if (links_[i].direction != OOCDNN_FORWARD) {
      return Error(Code::kInvalidProblem, "its direction must be forward");
    }
    if (given.scale != nullptr || given.residual != nullptr) {
      return Error(Code::kUnsupported,
                   "a scale or a residual in a chain's gradients: compute them link by link");
    }
    oocdnn_operands forward{};
    forward.x = &x_[i];
    forward.w = given.w;
    forward.bias = given.bias;
    OOC_ASSIGN(const oocdnn_tensor result, ResultOf(links_[i], x_[i], given.w));
    (links_[i].pool.mode != OOCDNN_POOL_MODE_NONE ? forward.z : forward.y) = &result;
    oocdnn_convolution link = links_[i];
    link.saves = 0;
    OOC_ASSIGN(CallArguments call, Translate(&link, &forward, math_));
    call.problem.saves = true;
    SetPooled(&call.problem);
    OOC_TRY(Validate(call.problem));
    call.problem.saves = call.problem.Uses(Operand::kSaved);
    int64_t bytes = call.problem.saves ? call.problem.BytesOf(Operand::kSaved) : 0;
    saved_.push_back(oocdnn_dense_tensor(OOCDNN_BYTE, 1, &bytes, nullptr));
    SetPooled(&call.problem);
    if (call.problem.saves) {
      call.tensors[Index(Operand::kSaved)].dtype = DType::kByte;
    }
    forward_.push_back(call);
    x_.push_back(result);
    return {};
  }

  // dx of a link is needed where the caller wants it, or any gradient of a link before it.
  void FindNeeds() {
    bool before = operands_[0].x != nullptr;
    for (size_t i = 0; i < count_; ++i) {
      needs_dx_.push_back(before);
      before = before || operands_[i].dw != nullptr || operands_[i].db != nullptr;
    }
  }

  Status TakeGradients(size_t i) {
    gradients_.emplace_back();
    const oocdnn_operands& given = operands_[i];
    const bool dx = needs_dx_[i], dw = given.dw != nullptr, db = given.db != nullptr;
    if (!dx && !dw && !db) return {};
    oocdnn_operands mine{};
    oocdnn_convolution link = links_[i];
    link.saves = 0;
    const oocdnn_tensor dz = i + 1 < count_ ? x_[i + 1] : *given.z;
    oocdnn_tensor y = x_[i + 1];
    if (dx) {
      link.direction = OOCDNN_BACKWARD_DATA;
      mine.x = i > 0 ? &x_[i] : given.x;
      mine.w = given.w;
      mine.dw = given.dw;
      mine.db = given.db;
      if (dw) mine.input = &x_[i];
    } else if (dw) {
      link.direction = OOCDNN_BACKWARD_FILTER;
      mine.x = &x_[i];
      mine.w = given.dw;
      mine.db = given.db;
    } else {
      link = BiasOf(link);
      mine.bias = given.db;
      OOC_ASSIGN(y, SumOf(i));
    }
    const Problem& forward = forward_[i].problem;
    const bool passes =
        forward.pool.pools() || forward.saves || mine.dw != nullptr || mine.db != nullptr;
    (passes ? mine.z : mine.y) = &dz;
    if (passes && link.direction == OOCDNN_BACKWARD_BIAS) mine.y = &y;
    if (forward.saves) mine.saved = given.saved != nullptr ? given.saved : &saved_[i];
    OOC_ASSIGN(gradients_.back(), Translate(&link, &mine, math_));
    return {};
  }

  // A sum over dy knows of no filter.
  static oocdnn_convolution BiasOf(const oocdnn_convolution& link) {
    oocdnn_convolution bias = oocdnn_default_convolution(OOCDNN_BACKWARD_BIAS, link.rank);
    bias.math = link.math;
    bias.activation = link.activation;
    bias.activation_parameter = link.activation_parameter;
    bias.pool = link.pool;
    return bias;
  }

  // A tensor of the shape of y, whatever is pooled of it.
  [[nodiscard]] Result<oocdnn_tensor> SumOf(size_t i) const {
    oocdnn_convolution link = links_[i];
    link.pool.mode = OOCDNN_POOL_MODE_NONE;
    return ResultOf(link, x_[i], operands_[i].w);
  }

  const oocdnn_convolution* links_;
  const oocdnn_operands* operands_;
  const size_t count_;
  const Math math_;
  std::vector<oocdnn_tensor> x_, saved_;  // x, and what each link writes
  std::vector<bool> needs_dx_;
  std::vector<CallArguments> forward_;
  std::vector<std::optional<CallArguments>> gradients_;
};

Result<GradientArguments> ArgumentsOf(const oocdnn_context* context,
                                      const oocdnn_convolution* links,
                                      const oocdnn_operands* operands, int64_t count) {
  OOC_TRY(Need(context, "the context"));
  OOC_TRY(Need(links, "the links"));
  OOC_TRY(Need(operands, "the operands"));
  OOC_TRY(NeedCount(count, "the number of links"));
  if (count < 1) return Error(Code::kInvalidProblem, "a chain without links");
  return GradientTranslator(links, operands, count, context->math).Run();
}

}  // namespace

oocdnn_status oocdnn_price_chain_backward(oocdnn_context* context, const oocdnn_convolution* links,
                                          const oocdnn_operands* operands, int64_t count,
                                          double* seconds) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(seconds, "seconds"));
    OOC_ASSIGN(const GradientArguments gradients, ArgumentsOf(context, links, operands, count));
    OOC_ASSIGN(*seconds,
               context->context->Price(gradients.program, gradients.tensors, LimitOf(links[0])));
    return {};
  });
}

oocdnn_status oocdnn_run_chain_backward(oocdnn_context* context, const oocdnn_convolution* links,
                                        const oocdnn_operands* operands, int64_t count) {
  return Guard([&]() -> Status {
    OOC_ASSIGN(const GradientArguments gradients, ArgumentsOf(context, links, operands, count));
    const CallOn running(context);
    const Progress progress = ProgressOf(links[0].progress, links[0].progress_user);
    return context->context->Run(gradients.program, gradients.tensors, links[0].stream, progress,
                                 LimitOf(links[0]));
  });
}
