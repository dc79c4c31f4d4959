// Calls of whole chains: planned in sections, which run one after the other. What one section
// leaves for the next is in host memory of the context's.
#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "base/config.hpp"
#include "base/log.hpp"
#include "library/context.hpp"
#include "library/operands.hpp"
#include "library/plan_key.hpp"

namespace oocdnn {
namespace {

std::string TextOf(const std::vector<Problem>& problems) {
  return Format("a chain of %zu links, from %s to %s", problems.size(),
                ToString(problems.front()).c_str(), ToString(problems.back()).c_str());
}

// Memory of nobody's, on the device: what is inner is neither looked at nor moved.
void PutInner(const Problem& problem, Operand operand, int64_t alignment, HostTensors* tensors) {
  HostTensor& tensor = (*tensors)[Index(operand)];
  tensor.view = {reinterpret_cast<void*>(alignment), problem.dtype,  // NOLINT: any address
                 problem.stride[Index(operand)]};
  tensor.tier = Tier::kDevice;
}

// Of the caller's tensors in a chain those that a device reaches, by operand; one of each will do.
HostTensors ReachedOf(const std::vector<Problem>& problems,
                      const std::vector<HostTensors>& tensors) {
  HostTensors reached;
  for (size_t i = 0; i < problems.size(); ++i) {
    for (int o = 0; o < kOperands; ++o) {
      const auto operand = static_cast<Operand>(o);
      const bool inner = (operand == Operand::kX && i > 0) ||
                         (operand == problems[i].output() && i + 1 < problems.size());
      const HostTensor& tensor = tensors[i][o];
      const bool here = problems[i].Has(operand) && !inner && !tensor.in_file();
      if (here && tensor.tier != Tier::kPageable) reached[o] = tensor;
    }
  }
  return reached;
}

}  // namespace

// What every link has of the caller's; what is between two links counts as on the device.
Result<std::vector<HostTensors>> Context::LocateChain(const std::vector<Problem>& problems,
                                                      const std::vector<HostTensors>& operands) {
  OOC_ASSIGN(const Chain chain, MakeChain(problems));
  OOC_TRY(CheckOperands(chain, operands));
  std::vector<HostTensors> tensors = operands;
  const int64_t alignment = stack_.device->capabilities().alignment;
  for (size_t i = 0; i < problems.size(); ++i) {
    if (i > 0) PutInner(problems[i], Operand::kX, alignment, &tensors[i]);
    if (i + 1 < problems.size()) {
      PutInner(problems[i], problems[i].output(), alignment, &tensors[i]);
    }
    OOC_TRY(LocateOperands(*stack_.device, chain[i], &tensors[i], InnerOf(chain, i)));
  }
  return tensors;
}

Result<Context::ChainPointer> Context::LookupChain(const std::vector<Problem>& problems,
                                                   const std::vector<HostTensors>& tensors,
                                                   int64_t budget, int64_t workspace) {
  std::vector<PlanRequest> links;
  std::string key;
  for (size_t i = 0; i < problems.size(); ++i) {
    Terms terms = TermsOf(problems[i], tensors[i], workspace);
    terms.budget = budget;
    key += KeyOf(problems[i], terms);
    links.push_back(RequestFor(problems[i], terms));
  }
  if (const ChainPointer* const kept = chains_.Find(key)) return *kept;
  int64_t bounce = 0;
  for (const PlanRequest& link : links) bounce = std::max(bounce, link.bounce_bytes);
  for (size_t i = 0; i < links.size(); ++i) {
    links[i].bounce_bytes = bounce;
    // By itself a link would find these in host memory.
    if (i > 0) links[i].home[Index(Operand::kX)] = Home::kHost;
    if (i + 1 < links.size()) links[i].home[Index(problems[i].output())] = Home::kHost;
  }
  const Profile& profile = ProfileFor(problems.front());
  Result<std::vector<ChainSection>> made =
      BesideArena([&] { return PlanChain(*stack_.device, links, profile, &prepared_); });
  if (!made.ok()) return std::move(made).status();
  if (chains_.full()) OOC_TRY(Settle());  // the one that goes may still be run
  return chains_.Put(key, std::make_shared<std::vector<ChainSection>>(std::move(made).value()));
}

// Pinned within the cap on what is, else as the system has it.
Status Context::MakeRoom(Shelf* shelf, int64_t bytes) {
  if (shelf->bytes >= bytes) return {};
  OOC_TRY(Settle());
  *shelf = {};
  if (bytes <= options_.host_cap) {
    Result<std::unique_ptr<HostMemory>> pinned = AllocateHost(bytes);
    if (pinned.ok()) shelf->pinned = std::move(pinned).value();
  }
  if (shelf->pinned == nullptr) {
    shelf->plain.reset(new (std::nothrow) char[static_cast<size_t>(bytes)]);
  }
  if (shelf->data() == nullptr) {
    return Error(Code::kOutOfMemory, "no host memory for the %s between two sections of a chain",
                 BytesText(bytes).c_str());
  }
  shelf->bytes = bytes;
  return {};
}

// What a section leaves: two regions take turns.
Result<HostTensor> Context::Between(const Problem& problem, size_t section) {
  const Operand output = problem.output();
  const int64_t bytes = problem.BytesOf(output);
  Shelf& shelf = between_[section % between_.size()];
  OOC_TRY(MakeRoom(&shelf, bytes));
  HostTensor tensor;
  tensor.view = {shelf.data(), problem.dtype, problem.stride[Index(output)]};
  OOC_ASSIGN(tensor.tier, stack_.device->TierOf(tensor.view.data, bytes));
  return tensor;
}

Status Context::RunSection(const ChainSection& section, const std::vector<Problem>& problems,
                           const std::vector<HostTensors>& tensors, const ChainCall& call) {
  const std::vector<HostTensors> mine(tensors.begin() + static_cast<std::ptrdiff_t>(section.begin),
                                      tensors.begin() + static_cast<std::ptrdiff_t>(section.end));
  if (section.booking == nullptr) {
    const Problem& problem = problems[section.begin];
    const Terms terms = TermsOf(problem, mine.front(), call.workspace);
    const Call single{problem, mine.front(), terms, call.caller, call.progress, *arena_};
    return RunWithin(single, call.budget);
  }
  const ChainBooking& booking = *section.booking;
  if (booking.bytes > arena_->bytes()) OOC_TRY(Settle());
  OOC_TRY(arena_->Reserve(booking.bytes));
  stats_.engine = booking.links.front().usual.executable().engine();
  for (int i = 0; i < kAxes; ++i) {
    stats_.split[i] = booking.tiles.tiling().Count(static_cast<Axis>(i));
  }
  return Loop().Run(booking, mine, *arena_, *slabs_, call.progress, &stats_.run, call.then);
}

// The sections' tensors follow each other; what they did adds up.
Status Context::RunSections(const std::vector<ChainSection>& sections,
                            const std::vector<Problem>& problems, std::vector<HostTensors> tensors,
                            const ChainCall& call) {
  RunStats sum;
  double predicted = 0.0;
  for (size_t s = 0; s < sections.size(); ++s) {
    const size_t last = sections[s].end - 1;
    if (s + 1 < sections.size()) {
      const Problem& problem = problems[last];
      OOC_ASSIGN(const HostTensor between, Between(problem, s));
      tensors[last][Index(problem.output())] = between;
      HostTensor& x = tensors[last + 1][Index(Operand::kX)] = between;
      x.view.stride = problems[last + 1].stride[Index(Operand::kX)];  // it may be grouped otherwise
    }
    OOC_TRY(RunSection(sections[s], problems, tensors, call));
    sum.Add(stats_.run);
    predicted += sections[s].seconds;
  }
  stats_.run = sum;
  stats_.predicted_seconds = predicted;
  return {};
}

Status Context::RunChain(const std::vector<Problem>& problems,
                         const std::vector<HostTensors>& operands, void* stream,
                         const Progress& progress, int64_t workspace) {
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  stats_ = CallStats{};
  Result<std::vector<HostTensors>> tensors = LocateChain(problems, operands);
  if (!tensors.ok()) return std::move(tensors).status().With(TextOf(problems));
  OOC_ASSIGN(const Stream caller, CallerOf(ReachedOf(problems, tensors.value()), stream));
  if (caller != nullptr) OOC_TRY(Loop().Follow(caller));
  if (problems.front().shape.n == 0) return {};
  Status status =
      RunChainWithin(problems, tensors.value(), {caller, nullptr, progress, budget_, workspace});
  return status.ok() ? std::move(status) : std::move(status).With(TextOf(problems));
}

Status Context::RunChainWithin(const std::vector<Problem>& problems,
                               const std::vector<HostTensors>& tensors, ChainCall call) {
  const int64_t allocations = arena_->allocations(), prepared = prepared_;
  bool on_device = true;
  for (size_t i = 0; i < problems.size(); ++i) {
    on_device = on_device && OnDevice(problems[i], HomesOf(problems[i], tensors[i]));
  }
  for (bool again = true;; again = false) {
    OOC_ASSIGN(const ChainPointer plan,
               LookupChain(problems, tensors, call.budget, call.workspace));
    call.then = on_device && plan->size() == 1 ? call.caller : nullptr;
    Status status = RunSections(*plan, problems, tensors, call);
    stats_.peak_device_bytes = arena_->peak();
    stats_.device_allocations = arena_->allocations() - allocations;
    stats_.prepared = prepared_ - prepared;
    stats_.budget_bytes = budget_;
    if (status.code() != Code::kOutOfMemory || !again) return status;
    // What was free when the budget was set may be gone.
    OOC_ASSIGN(const int64_t free, stack_.device->FreeBytes());
    call.budget = std::min(call.budget / 2, free / 10 * 9);
    Log(LogLevel::kInfo, "planning again: %s", status.message().c_str());
  }
}

}  // namespace oocdnn
