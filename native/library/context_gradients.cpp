// Calls of the gradients of whole chains: one plan, one run of the tile loop.
#include <algorithm>
#include <utility>

#include "base/config.hpp"
#include "base/log.hpp"
#include "library/context.hpp"
#include "library/file_mappings.hpp"
#include "library/operands.hpp"

namespace oocdnn {
namespace {

std::string TextOf(const GradientChain& chain) {
  return Format("the gradients of a chain of %zu links, to %s", chain.origin.back().link + 1,
                ToString(chain.problems.back()).c_str());
}

}  // namespace

// What is inner counts as on the device.
Result<std::vector<HostTensors>> Context::LocateGradients(
    const GradientChain& chain, const std::vector<HostTensors>& operands) {
  std::vector<HostTensors> tensors = operands;
  for (size_t i = 0; i < chain.size(); ++i) {
    OOC_TRY(LocateOperands(*stack_.device, chain.problems[i], &tensors[i], chain.inner[i]));
    for (size_t o = 0; o < kOperands; ++o) {
      if (chain.inner[i][o]) tensors[i][o].tier = Tier::kDevice;
    }
  }
  OOC_TRY(CheckFileMappings(chain, tensors));
  return tensors;
}

std::vector<Context::Terms> Context::TermsOf(const GradientChain& chain,
                                             const std::vector<HostTensors>& tensors,
                                             int64_t budget, int64_t workspace) const {
  std::vector<Terms> terms;
  for (size_t i = 0; i < chain.size(); ++i) {
    terms.push_back(TermsOf(chain.problems[i], tensors[i], workspace));
    terms.back().in_place = {};
    terms.back().budget = budget;
  }
  return terms;
}

GradientRequest Context::RequestFor(const GradientChain& chain,
                                    const std::vector<Terms>& terms) const {
  GradientRequest request{chain, {}};
  int64_t bounce = 0;
  for (size_t i = 0; i < chain.size(); ++i) {
    PlanRequest& mine = request.requests.emplace_back(RequestFor(chain.problems[i], terms[i]));
    mine.may_compile = true;  // arithmetic is most of what a chain takes
    bounce = std::max(bounce, mine.bounce_bytes);
    for (size_t o = 0; o < kOperands; ++o) {
      if (chain.inner[i][o]) mine.home[o] = Home::kTile;
    }
  }
  for (PlanRequest& mine : request.requests) mine.bounce_bytes = bounce;
  return request;
}

Result<double> Context::PriceGradients(const GradientChain& chain,
                                       const std::vector<HostTensors>& operands,
                                       int64_t workspace) {
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_price_chain_backward"));
  OOC_ASSIGN(const std::vector<HostTensors> tensors, LocateGradients(chain, operands));
  if (chain.problems.front().shape.n == 0) return 0.0;
  const std::vector<Terms> terms = TermsOf(chain, tensors, BudgetOf(tensors), workspace);
  return oocdnn::PriceGradients(RequestFor(chain, terms), ProfileFor(chain.problems.front()));
}

Result<Context::GradientPointer> Context::LookupGradients(const GradientChain& chain,
                                                          const std::vector<HostTensors>& tensors,
                                                          int64_t budget, int64_t workspace) {
  const std::vector<Terms> terms = TermsOf(chain, tensors, budget, workspace);
  std::string key;
  for (size_t i = 0; i < chain.size(); ++i) {
    key += KeyOf(chain.problems[i], terms[i]) + Format(" %zu ", chain.origin[i].link);
  }
  if (const GradientPointer* const kept = gradients_.Find(key)) return *kept;
  GradientRequest request = RequestFor(chain, terms);
  const Profile& profile = ProfileFor(chain.problems.front());
  Result<GradientPlan> made = BesideArena(
      [&] { return PlanGradients(*stack_.device, std::move(request), profile, &prepared_); });
  if (!made.ok()) return std::move(made).status();
  if (gradients_.full()) OOC_TRY(Settle());  // the one that goes may still be run
  return gradients_.Put(key, std::make_shared<const GradientPlan>(std::move(made).value()));
}

Status Context::RunGradients(const GradientChain& chain, const std::vector<HostTensors>& operands,
                             void* stream, const Progress& progress, int64_t workspace) {
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_run_chain_backward"));
  stats_ = CallStats{};
  const Status checked = CheckOperands(chain, operands);
  if (!checked.ok()) return Status(checked).With(TextOf(chain));
  Result<std::vector<HostTensors>> located = LocateGradients(chain, operands);
  if (!located.ok()) return std::move(located).status().With(TextOf(chain));
  const std::vector<HostTensors>& tensors = located.value();
  HostTensors reached;  // of what a device reaches, one of each operand
  bool on_device = true;
  for (size_t i = 0; i < chain.size(); ++i) {
    on_device = on_device && OnDevice(chain.problems[i], HomesOf(chain.problems[i], tensors[i]));
    for (size_t o = 0; o < kOperands; ++o) {
      const bool caller = chain.problems[i].Has(static_cast<Operand>(o)) && !chain.inner[i][o];
      if (caller && tensors[i][o].tier != Tier::kPageable) reached[o] = tensors[i][o];
    }
  }
  OOC_ASSIGN(const Stream caller, CallerOf(reached, stream));
  if (caller != nullptr) OOC_TRY(Loop().Follow(caller));
  if (chain.problems.front().shape.n == 0) {
    OOC_TRY(Settle());
    for (size_t i = 0; i < chain.size(); ++i) {
      OOC_TRY(RunEmpty(*stack_.device, chain.problems[i], tensors[i], *arena_));
    }
    return {};
  }
  const ChainCall call{caller, on_device ? caller : nullptr, progress, BudgetOf(tensors),
                       workspace};
  Status status = RunGradientsWithin(chain, tensors, call);
  return status.ok() ? std::move(status) : std::move(status).With(TextOf(chain));
}

// What was free when the budget was set may be gone: then once more with what there is.
Status Context::RunGradientsWithin(const GradientChain& chain,
                                   const std::vector<HostTensors>& tensors, ChainCall call) {
  const int64_t allocations = arena_->allocations(), prepared = prepared_, budget = call.budget;
  double planning = 0.0;
  for (bool again = true;; again = false) {
    const auto begin = std::chrono::steady_clock::now();
    OOC_ASSIGN(const GradientPointer plan,
               LookupGradients(chain, tensors, call.budget, call.workspace));
    planning += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const GradientBooking& booking = plan->booking;
    if (booking.bytes > arena_->bytes()) OOC_TRY(Settle());
    Status status = arena_->Reserve(booking.bytes);
    if (status.ok()) {
      status =
          Loop().Run(booking, tensors, *arena_, *slabs_, call.progress, &stats_.run, call.then);
    }
    stats_.engine = booking.problems.front().usual.executable().engine();
    stats_.split[Index(Axis::kN)] = booking.Steps();
    stats_.predicted_seconds = plan->seconds;
    stats_.planning_seconds = planning;
    stats_.peak_device_bytes = arena_->peak();
    stats_.device_allocations = arena_->allocations() - allocations;
    stats_.prepared = prepared_ - prepared;
    stats_.budget_bytes = budget;
    if (status.code() != Code::kOutOfMemory || !again) return status;
    OOC_ASSIGN(const int64_t free, stack_.device->FreeBytes());
    call.budget = std::min(call.budget / 2, free / 10 * 9);
    Log(LogLevel::kInfo, "planning again: %s", status.message().c_str());
  }
}

}  // namespace oocdnn
