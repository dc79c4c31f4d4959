// Calls of whole chains: planned in sections, which run one after the other. What one section
// leaves for the next is in host memory of the context's.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/config.hpp"
#include "base/log.hpp"
#include "library/context.hpp"
#include "library/file_mappings.hpp"
#include "library/operands.hpp"
#include "store/plan_key.hpp"

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

std::string TextOf(const Chain& chain) {
  return Format("a chain of %zu links, from %s to %s", chain.size(),
                ToString(chain.front()).c_str(), ToString(chain.back()).c_str());
}

// Of the links as they were given: what a link by itself writes, others read within the chain.
bool IsBetween(const Chain& chain, size_t link, Operand operand) {
  const bool written = operand == chain[link].output() && link + 1 < chain.size();
  return written || IsInner(chain, link, operand);
}

// The section that leaves its result for a link to add; else how many there are.
size_t SectionLeaving(const Chain& chain, const std::vector<ChainSection>& sections, size_t link) {
  const int64_t source = chain.residual[link];
  for (size_t s = 0; s < sections.size(); ++s) {
    if (static_cast<int64_t>(sections[s].end) - 1 == source) return s;
  }
  return sections.size();
}

// For each section, the buffer of its result: the lowest that nobody reads any more. The last
// one has none.
std::vector<size_t> BufferOf(const Chain& chain, const std::vector<ChainSection>& sections) {
  std::vector<size_t> last(sections.size()), buffer(sections.size());  // by section
  for (size_t s = 0; s < sections.size(); ++s) {
    last[s] = s + 1;
    for (size_t i = sections[s].begin; i < sections[s].end; ++i) {
      const size_t from = SectionLeaving(chain, sections, i);
      if (from < s) last[from] = std::max(last[from], s);
    }
  }
  for (size_t s = 0; s + 1 < sections.size(); ++s) {
    const auto taken = [&](size_t number) {
      for (size_t before = 0; before < s; ++before) {
        if (buffer[before] == number && last[before] >= s) return true;
      }
      return false;
    };
    while (taken(buffer[s])) ++buffer[s];
  }
  return buffer;
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
HostTensors ReachedOf(const Chain& chain, const std::vector<HostTensors>& tensors) {
  HostTensors reached;
  for (size_t i = 0; i < chain.size(); ++i) {
    for (int o = 0; o < kOperands; ++o) {
      const auto operand = static_cast<Operand>(o);
      const HostTensor& tensor = tensors[i][o];
      const bool here = chain[i].Has(operand) && !IsBetween(chain, i, operand) && !tensor.in_file();
      if (here && tensor.tier != Tier::kPageable) reached[o] = tensor;
    }
  }
  return reached;
}

}  // namespace

// What every link has of the caller's; what is between two links counts as on the device.
Result<std::vector<HostTensors>> Context::LocateChain(const Chain& chain, const Chain& made,
                                                      const std::vector<HostTensors>& operands) {
  std::vector<HostTensors> tensors = operands;
  const int64_t alignment = stack_.device->capabilities().alignment;
  for (size_t i = 0; i < chain.size(); ++i) {
    for (int o = 0; o < kOperands; ++o) {
      const auto operand = static_cast<Operand>(o);
      if (IsBetween(chain, i, operand)) PutInner(chain[i], operand, alignment, &tensors[i]);
    }
    OOC_TRY(LocateOperands(*stack_.device, made[i], &tensors[i], InnerOf(made, i)));
  }
  OOC_TRY(CheckFileMappings(made, tensors));
  return tensors;
}

std::vector<Context::Terms> Context::TermsOf(const Chain& chain,
                                             const std::vector<HostTensors>& tensors,
                                             int64_t budget, int64_t workspace) const {
  std::vector<Terms> terms;
  for (size_t i = 0; i < chain.size(); ++i) {
    terms.push_back(TermsOf(chain[i], tensors[i], workspace));
    terms.back().budget = budget;
  }
  return terms;
}

std::vector<PlanRequest> Context::RequestsFor(const Chain& chain,
                                              const std::vector<Terms>& terms) const {
  std::vector<PlanRequest> links;
  int64_t bounce = 0;
  const auto deadline = DeadlineIn(options_.planning_seconds);
  for (size_t i = 0; i < chain.size(); ++i) {
    links.push_back(RequestFor(chain[i], terms[i]));
    bounce = std::max(bounce, links.back().bounce_bytes);
    links.back().deadline = deadline;
    // At the ends of a section, and by itself, a link finds these in host memory.
    for (int o = 0; o < kOperands; ++o) {
      const auto operand = static_cast<Operand>(o);
      if (IsBetween(chain, i, operand)) PutOnHost(operand, &links.back());
    }
  }
  for (PlanRequest& link : links) link.bounce_bytes = bounce;
  return links;
}

Result<double> Context::PriceChain(const Chain& chain, const std::vector<HostTensors>& operands,
                                   int64_t workspace) {
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_price_chain"));
  OOC_ASSIGN(const Chain made, MakeChain(chain));
  OOC_ASSIGN(const std::vector<HostTensors> tensors, LocateChain(chain, made, operands));
  if (chain.front().shape.n == 0) return 0.0;
  const std::vector<Terms> terms = TermsOf(chain, tensors, BudgetOf(tensors), workspace);
  return oocdnn::PriceChain(*stack_.device, chain, RequestsFor(chain, terms),
                            ProfileFor(chain.front()));
}

Result<Context::ChainPointer> Context::LookupChain(const Chain& chain,
                                                   const std::vector<HostTensors>& tensors,
                                                   int64_t budget, int64_t workspace) {
  const std::vector<Terms> terms = TermsOf(chain, tensors, budget, workspace);
  std::string key;
  for (size_t i = 0; i < chain.size(); ++i) {
    key += KeyOf(chain[i], terms[i]) + Format(" %lld ", static_cast<long long>(chain.residual[i]));
  }
  if (const ChainPointer* const kept = chains_.Find(key)) return *kept;
  const std::vector<PlanRequest> links = RequestsFor(chain, terms);
  const Profile& profile = ProfileFor(chain.front());
  Result<std::vector<ChainSection>> made =
      BesideArena([&] { return PlanChain(*stack_.device, chain, links, profile, &prepared_); });
  if (!made.ok()) return std::move(made).status();
  if (chains_.full()) OOC_TRY(Settle());  // the one that goes may still be run
  return chains_.Put(key, std::make_shared<std::vector<ChainSection>>(std::move(made).value()));
}

// In the strides of either side, as links may group channels otherwise than those before them.
Status Context::Join(const std::vector<ChainSection>& sections, const Chain& chain,
                     std::vector<HostTensors>* tensors) {
  const std::vector<size_t> buffer = BufferOf(chain, sections);
  SectionBuffers::Bytes bytes;
  for (size_t s = 0; s + 1 < sections.size(); ++s) {
    const Problem& writes = chain[sections[s].end - 1];
    bytes.resize(std::max(bytes.size(), buffer[s] + 1));
    bytes[buffer[s]] = std::max(bytes[buffer[s]], writes.BytesOf(writes.output()));
  }
  if (!buffers_->Have(bytes)) {
    OOC_TRY(Settle());
    OOC_TRY(buffers_->Reserve(bytes, slabs_.get()));
  }
  const auto lay = [&](size_t section, size_t link, Operand operand) -> Status {
    const Problem& writes = chain[sections[section].end - 1];
    void* const data = buffers_->At(buffer[section]);
    HostTensor& tensor = (*tensors)[link][Index(operand)];
    tensor.view = {data, chain[link].dtype, chain[link].stride[Index(operand)]};
    OOC_ASSIGN(tensor.tier, stack_.device->TierOf(data, writes.BytesOf(writes.output())));
    return {};
  };
  for (size_t s = 0; s + 1 < sections.size(); ++s) {
    const size_t next = sections[s].end;
    OOC_TRY(lay(s, next - 1, chain[next - 1].output()));
    OOC_TRY(lay(s, next, Operand::kX));
  }
  for (size_t i = 0; i < chain.size(); ++i) {
    const size_t s = SectionLeaving(chain, sections, i);
    if (s < sections.size()) OOC_TRY(lay(s, i, Operand::kResidual));
  }
  return {};
}

Result<std::vector<int64_t>> Context::StepsOf(const std::vector<ChainSection>& sections,
                                              const Chain& chain,
                                              const std::vector<HostTensors>& tensors,
                                              const ChainCall& call) {
  std::vector<int64_t> steps;
  Status refused;  // of the link that needs most
  for (const ChainSection& section : sections) {
    if (section.booking != nullptr) {
      steps.push_back(section.booking->tiles.Steps());
      continue;
    }
    const size_t link = section.begin;
    Terms terms = TermsOf(chain[link], tensors[link], call.workspace);
    terms.budget = call.budget;
    const Result<PlanPointer> plan = Lookup(chain[link], terms);
    if (plan.ok()) {
      steps.push_back(plan.value()->booking.candidate.tiling.Tiles());
      continue;
    }
    const Status& why = plan.status();
    const bool small = why.code() == Code::kOutOfMemory;
    if (!small || refused.ok() || why.detail() > refused.detail()) {
      refused = Status(why).With(Format("link %zu by itself", link));
    }
    if (!small) break;
  }
  if (!refused.ok()) return refused;
  return steps;
}

Status Context::RunSection(const ChainSection& section, const Chain& chain,
                           const std::vector<HostTensors>& tensors, const ChainCall& call,
                           bool* short_of) {
  const std::vector<HostTensors> mine(tensors.begin() + static_cast<std::ptrdiff_t>(section.begin),
                                      tensors.begin() + static_cast<std::ptrdiff_t>(section.end));
  if (section.booking == nullptr) {
    const Problem& problem = chain[section.begin];
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
Status Context::RunSections(const std::vector<ChainSection>& sections, const Chain& chain,
                            std::vector<HostTensors> tensors, const ChainCall& call,
                            bool* short_of) {
  const Watch watch;
  OOC_TRY(Join(sections, chain, &tensors));
  OOC_ASSIGN(const std::vector<int64_t> steps, StepsOf(sections, chain, tensors, call));
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
    OOC_TRY(RunSection(sections[s], chain, tensors, part, short_of));
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

Status Context::RunChain(const Chain& chain, const std::vector<HostTensors>& operands, void* stream,
                         const Progress& progress, int64_t workspace) {
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_run_chain"));
  stats_ = CallStats{};
  const Result<Chain> made = MakeChain(chain);
  const Status checked = made.ok() ? CheckOperands(made.value(), operands) : made.status();
  if (!checked.ok()) return Status(checked).With(TextOf(chain));
  Result<std::vector<HostTensors>> located = LocateChain(chain, made.value(), operands);
  if (!located.ok()) return std::move(located).status().With(TextOf(chain));
  const std::vector<HostTensors>& tensors = located.value();
  OOC_ASSIGN(const Stream caller, CallerOf(ReachedOf(chain, tensors), stream));
  if (caller != nullptr) OOC_TRY(Loop().Follow(caller));
  if (chain.front().shape.n == 0) return {};
  const int64_t budget = BudgetOf(tensors);
  ChainCall call{caller, nullptr, progress, budget, workspace};
  Status status = RunChainWithin(chain, tensors, call);
  if (status.code() == Code::kOutOfMemory && budget < budget_) {
    call.budget = budget_;
    status = RunChainWithin(chain, tensors, call);
  }
  return status.ok() ? std::move(status) : std::move(status).With(TextOf(chain));
}

Status Context::RunChainWithin(const Chain& chain, const std::vector<HostTensors>& tensors,
                               ChainCall call) {
  const int64_t allocations = arena_->allocations(), prepared = prepared_;
  const int64_t budget = call.budget;
  double planning = 0.0;
  bool on_device = true;
  for (size_t i = 0; i < chain.size(); ++i) {
    on_device = on_device && OnDevice(chain[i], HomesOf(chain[i], tensors[i]));
  }
  for (bool again = true;; again = false) {
    const Watch watch;
    OOC_ASSIGN(const ChainPointer plan, LookupChain(chain, tensors, call.budget, call.workspace));
    planning += watch.Seconds();
    call.then = on_device && plan->size() == 1 ? call.caller : nullptr;
    bool short_of = false;
    Status status = RunSections(*plan, chain, tensors, call, &short_of);
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
