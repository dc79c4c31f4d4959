// Calls of whole chains: planned in sections, which run one after the other. What one section
// leaves for the next is in host memory of the context's.
#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/config.hpp"
#include "base/log.hpp"
#include "library/context.hpp"
#include "library/operands.hpp"
#include "library/plan_key.hpp"

namespace oocdnn {
namespace {

// Seconds of the host's.
class Watch {
 public:
  [[nodiscard]] double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

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

void PutOnHost(Operand operand, PlanRequest* link) {
  link->home[Index(operand)] = Home::kHost;
  link->in_place[Index(operand)] = false;
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
  std::vector<Terms> terms;
  std::string key;
  for (size_t i = 0; i < problems.size(); ++i) {
    terms.push_back(TermsOf(problems[i], tensors[i], workspace));
    terms.back().budget = budget;
    key += KeyOf(problems[i], terms.back());
  }
  if (const ChainPointer* const kept = chains_.Find(key)) return *kept;
  std::vector<PlanRequest> links;
  int64_t bounce = 0;
  const auto deadline = DeadlineIn(options_.planning_seconds);
  for (size_t i = 0; i < problems.size(); ++i) {
    links.push_back(RequestFor(problems[i], terms[i]));
    bounce = std::max(bounce, links.back().bounce_bytes);
    links.back().deadline = deadline;
    // At the ends of a section, and by itself, a link finds these in host memory.
    if (i > 0) PutOnHost(Operand::kX, &links.back());
    if (i + 1 < problems.size()) PutOnHost(problems[i].output(), &links.back());
  }
  for (PlanRequest& link : links) link.bounce_bytes = bounce;
  const Profile& profile = ProfileFor(problems.front());
  Result<std::vector<ChainSection>> made =
      BesideArena([&] { return PlanChain(*stack_.device, links, profile, &prepared_); });
  if (!made.ok()) return std::move(made).status();
  if (chains_.full()) OOC_TRY(Settle());  // the one that goes may still be run
  return chains_.Put(key, std::make_shared<std::vector<ChainSection>>(std::move(made).value()));
}

// In the strides of either side, as links may group channels otherwise than those before them.
Status Context::Join(const std::vector<ChainSection>& sections,
                     const std::vector<Problem>& problems, std::vector<HostTensors>* tensors) {
  Shelves::Bytes bytes{};
  for (size_t s = 0; s + 1 < sections.size(); ++s) {
    const Problem& writes = problems[sections[s].end - 1];
    int64_t& most = bytes[s % Shelves::kCount];
    most = std::max(most, writes.BytesOf(writes.output()));
  }
  if (!shelves_->Have(bytes)) {
    OOC_TRY(Settle());
    OOC_TRY(shelves_->Reserve(bytes, slabs_.get()));
  }
  for (size_t s = 0; s + 1 < sections.size(); ++s) {
    const size_t next = sections[s].end;
    const Operand output = problems[next - 1].output();
    const int64_t size = problems[next - 1].BytesOf(output);
    OOC_ASSIGN(const Tier tier, stack_.device->TierOf(shelves_->At(s), size));
    for (const auto& [link, operand] : {std::pair{next - 1, output}, {next, Operand::kX}}) {
      HostTensor& tensor = (*tensors)[link][Index(operand)];
      tensor.view = {shelves_->At(s), problems[link].dtype, problems[link].stride[Index(operand)]};
      tensor.tier = tier;
    }
  }
  return {};
}

Result<std::vector<int64_t>> Context::StepsOf(const std::vector<ChainSection>& sections,
                                              const std::vector<Problem>& problems,
                                              const std::vector<HostTensors>& tensors,
                                              const ChainCall& call) {
  std::vector<int64_t> steps;
  for (const ChainSection& section : sections) {
    if (section.booking != nullptr) {
      steps.push_back(section.booking->tiles.Steps());
      continue;
    }
    const size_t link = section.begin;
    Terms terms = TermsOf(problems[link], tensors[link], call.workspace);
    terms.budget = call.budget;
    const Result<PlanPointer> plan = Lookup(problems[link], terms);
    if (!plan.ok()) return Status(plan.status()).With(Format("link %zu by itself", link));
    steps.push_back(plan.value()->booking.candidate.tiling.Tiles());
  }
  return steps;
}

Status Context::RunSection(const ChainSection& section, const std::vector<Problem>& problems,
                           const std::vector<HostTensors>& tensors, const ChainCall& call,
                           bool* short_of) {
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
  Status status = arena_->Reserve(booking.bytes);
  if (status.ok()) {
    status = Loop().Run(booking, mine, *arena_, *slabs_, call.progress, &stats_.run, call.then);
  }
  *short_of = status.code() == Code::kOutOfMemory;
  stats_.engine = booking.links.front().usual.executable().engine();
  for (int i = 0; i < kAxes; ++i) {
    stats_.split[i] = booking.tiles.tiling().Count(static_cast<Axis>(i));
  }
  return status;
}

// The sections' tensors follow each other; what they did adds up.
Status Context::RunSections(const std::vector<ChainSection>& sections,
                            const std::vector<Problem>& problems, std::vector<HostTensors> tensors,
                            const ChainCall& call, bool* short_of) {
  const Watch watch;
  OOC_TRY(Join(sections, problems, &tensors));
  OOC_ASSIGN(const std::vector<int64_t> steps, StepsOf(sections, problems, tensors, call));
  CallStats sum;
  sum.planning_seconds = watch.Seconds();
  const int64_t all = std::accumulate(steps.begin(), steps.end(), int64_t{0});
  int64_t before = 0;
  for (size_t s = 0; s < sections.size(); ++s) {
    // A link that is planned again on the way may have more tiles than were counted.
    const Progress progress = [&](int64_t done, int64_t) {
      return call.progress(before + std::min(done, steps[s]), all);
    };
    const ChainCall part{call.caller, call.then, call.progress ? progress : call.progress,
                         call.budget, call.workspace};
    stats_.planning_seconds = 0.0;
    OOC_TRY(RunSection(sections[s], problems, tensors, part, short_of));
    before += steps[s];
    sum.run.Add(stats_.run);
    sum.predicted_seconds += sections[s].seconds;
    sum.planning_seconds += stats_.planning_seconds;
  }
  stats_.run = sum.run;
  stats_.predicted_seconds = sum.predicted_seconds;
  stats_.planning_seconds = sum.planning_seconds;
  return {};
}

Status Context::RunChain(const std::vector<Problem>& problems,
                         const std::vector<HostTensors>& operands, void* stream,
                         const Progress& progress, int64_t workspace) {
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  stats_ = CallStats{};
  Result<std::vector<HostTensors>> located = LocateChain(problems, operands);
  if (!located.ok()) return std::move(located).status().With(TextOf(problems));
  const std::vector<HostTensors>& tensors = located.value();
  OOC_ASSIGN(const Stream caller, CallerOf(ReachedOf(problems, tensors), stream));
  if (caller != nullptr) OOC_TRY(Loop().Follow(caller));
  if (problems.front().shape.n == 0) return {};
  const int64_t budget = BudgetOf(tensors);
  ChainCall call{caller, nullptr, progress, budget, workspace};
  Status status = RunChainWithin(problems, tensors, call);
  if (status.code() == Code::kOutOfMemory && budget < budget_) {
    call.budget = budget_;
    status = RunChainWithin(problems, tensors, call);
  }
  return status.ok() ? std::move(status) : std::move(status).With(TextOf(problems));
}

Status Context::RunChainWithin(const std::vector<Problem>& problems,
                               const std::vector<HostTensors>& tensors, ChainCall call) {
  const int64_t allocations = arena_->allocations(), prepared = prepared_;
  const int64_t budget = call.budget;
  double planning = 0.0;
  bool on_device = true;
  for (size_t i = 0; i < problems.size(); ++i) {
    on_device = on_device && OnDevice(problems[i], HomesOf(problems[i], tensors[i]));
  }
  for (bool again = true;; again = false) {
    const Watch watch;
    OOC_ASSIGN(const ChainPointer plan,
               LookupChain(problems, tensors, call.budget, call.workspace));
    planning += watch.Seconds();
    call.then = on_device && plan->size() == 1 ? call.caller : nullptr;
    bool short_of = false;
    Status status = RunSections(*plan, problems, tensors, call, &short_of);
    planning += stats_.planning_seconds;
    stats_.planning_seconds = planning;
    stats_.peak_device_bytes = arena_->peak();
    stats_.device_allocations = arena_->allocations() - allocations;
    stats_.prepared = prepared_ - prepared;
    stats_.budget_bytes = budget;
    // A link by itself has been planned again where that helps.
    if (!short_of || !again) return status;
    // What was free when the budget was set may be gone.
    OOC_ASSIGN(const int64_t free, stack_.device->FreeBytes());
    call.budget = std::min(call.budget / 2, free / 10 * 9);
    Log(LogLevel::kInfo, "planning again: %s", status.message().c_str());
  }
}

}  // namespace oocdnn
