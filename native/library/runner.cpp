// Calls of single problems and of programs. A program is planned in sections, which run one after
// the other; what one section leaves for another is in host memory of the session's.
#include "library/runner.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "base/watch.hpp"
#include "library/call_pins.hpp"
#include "library/empty.hpp"
#include "library/file_mappings.hpp"
#include "library/locate.hpp"

namespace oocdnn {
namespace {

// A plan smaller than this is not worth another attempt.
constexpr int64_t kLeastBudget = 4096;

// The section that leaves a node's operand for others to read; else how many there are.
size_t SectionLeaving(const Program& program, const std::vector<ProgramSection>& sections,
                      size_t node, Operand operand) {
  const ProgramTensor* const tensor = program.TensorOf(node, operand);
  if (tensor == nullptr || tensor->outer) return sections.size();
  const auto leaves = [&](const ProgramSection& section) {
    return section.end == tensor->uses.front().node + 1;
  };
  const auto found = std::find_if(sections.begin(), sections.end(), leaves);
  return static_cast<size_t>(found - sections.begin());
}

// For each section, the buffer of its result: the lowest that nobody reads any more. The last one
// has none.
std::vector<size_t> BufferOf(const Program& program, const std::vector<ProgramSection>& sections) {
  std::vector<size_t> last(sections.size()), buffer(sections.size());  // by section
  for (size_t s = 0; s < sections.size(); ++s) {
    last[s] = s + 1;
    for (size_t i = sections[s].begin; i < sections[s].end; ++i) {
      const size_t from = SectionLeaving(program, sections, i, Operand::kResidual);
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

// Whether anything of the caller's is read or written in the order of its stream.
bool IsOrdered(const OperandViews& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const TensorView& tensor) { return IsReached(tensor.location.tier); });
}

bool IsOrdered(const Program& program, const std::vector<OperandViews>& tensors) {
  for (size_t i = 0; i < program.size(); ++i) {
    const Inner passed = program.PassedTo(i);
    for (int o = 0; o < kOperands; ++o) {
      const TensorView& tensor = tensors[i][o];
      const bool own = program[i].Has(static_cast<Operand>(o)) && !passed[o];
      if (own && IsReached(tensor.location.tier)) return true;
    }
  }
  return false;
}

}  // namespace

Status Runner::Reserve(Arena& arena, int64_t bytes) {
  if (bytes > arena.bytes()) OOC_TRY(session_.Settle());
  return arena.Reserve(bytes);
}

void Runner::NotePlan(const Booking& first, const Tiling& tiling, double seconds) {
  stats_.predicted_seconds = seconds;
  stats_.engine = first.usual.executable().engine();
  for (int i = 0; i < kAxes; ++i) stats_.split[i] = tiling.Count(static_cast<Axis>(i));
}

// What was free when the budget was set may be gone, on the device or on the host: then plan again
// with what there is, and say who holds what if that fails too.
template <class Try>
Status Runner::MakeAttempts(int64_t budget, const Arena& arena, const Try& attempt) {
  const int64_t allocations = arena.allocations(), prepared = planner_.prepared();
  Status short_of;
  for (int64_t aim = budget;;) {
    Result<Attempt> tried = attempt(aim);
    if (!tried.ok()) {
      if (short_of.ok()) return std::move(tried).status();
      return std::move(short_of).With(
          Format("planned again with %s and failed", BytesText(aim).c_str()));
    }
    Attempt& made = tried.value();
    stats_.peak_device_bytes = arena.peak();
    stats_.device_allocations = arena.allocations() - allocations;
    stats_.prepared = planner_.prepared() - prepared;
    stats_.budget_bytes = budget;
    if (made.status.code() != Code::kOutOfMemory || made.bytes == 0) return std::move(made.status);

    // Staging shrinks with the tiles; device memory is asked for once more, within what is free.
    const bool device = made.device_is_short;
    if (device && !short_of.ok()) return std::move(made.status).With(short_of.message());
    Log(LogLevel::kInfo, "planning again: %s", made.status.message().c_str());
    int64_t next = made.bytes / 2;
    if (device) {
      Result<int64_t> free = session_.device().FreeBytes();
      if (free.ok()) next = std::min(made.bytes - 1, free.value() / 10 * 9);
      short_of = made.status;
    }
    if (next < kLeastBudget) return std::move(made.status);
    aim = next;
  }
}

Status Runner::Run(const Problem& problem, const OperandViews& operands, void* stream,
                   const Progress& progress, const Scratch& scratch, int64_t workspace) {
  stats_ = CallStats{};
  Device& device = session_.device();
  OperandViews tensors = operands;
  OOC_TRY(LocateOperands(device, problem, &tensors));
  OOC_TRY(CheckFileMappings(problem, tensors));
  Stream caller{};
  if (IsOrdered(tensors)) {
    OOC_ASSIGN(caller, session_.Follow(stream));
  }
  if (problem.shape.n == 0) {
    OOC_TRY(session_.Settle());
    return RunEmpty(device, problem, tensors, session_.arena());
  }

  const Terms terms = TermsOf(session_, problem, tensors, workspace);
  if (const int64_t alignment = device.capabilities().alignment;
      scratch.bytes > alignment && OnDevice(problem, terms.tiers)) {
    const auto address = reinterpret_cast<uintptr_t>(scratch.data);
    const auto first = RoundUp(static_cast<int64_t>(address), alignment);
    Arena lent(device, reinterpret_cast<void*>(first),  // NOLINT: aligned
               scratch.bytes - alignment);
    const NodeCall within{problem, tensors, terms, caller, progress, lent};
    Status status = RunNode(within, lent.bytes());
    if (status.code() != Code::kOutOfMemory) return std::move(status).With(ToString(problem));
  }
  const NodeCall call{problem, tensors, terms, caller, progress, session_.arena()};
  const int64_t budget = session_.BudgetFor({&tensors, 1}), all = session_.budget();
  Status status = RunNode(call, budget);
  if (status.code() == Code::kOutOfMemory && budget < all) status = RunNode(call, all);
  if (status.ok()) return {};
  return std::move(status).With(ToString(problem));
}

Status Runner::RunNode(const NodeCall& call, int64_t budget) {
  // With all operands on the device the caller's stream need not wait for the host.
  const Stream then = OnDevice(call.problem, call.terms.tiers) ? call.caller : nullptr;
  return MakeAttempts(budget, call.arena, [&](int64_t aim) -> Result<Attempt> {
    Terms terms = call.terms;
    terms.budget = aim;
    const Watch watch;
    Result<PlanPointer> plan = planner_.Lookup(call.problem, terms);
    stats_.planning_seconds += watch.Seconds();
    if (!plan.ok()) return std::move(plan).status();
    const Booking& booking = plan.value()->booking;
    Attempt made{Reserve(call.arena, booking.bytes), booking.bytes};
    if (made.status.ok()) made.status = RunPinned(booking, call, then);
    made.device_is_short = call.arena.bytes() < booking.bytes;
    NotePlan(booking, booking.candidate.tiling, plan.value()->cost.seconds);
    return made;
  });
}

// The loop returns with nothing in flight: whoever has memory that is not on the device waits.
// Where the system refuses to pin once, it is not asked again: it would look at all pages each
// time. Another call's pins are gone when the next one begins.
Status Runner::RunPinned(const Booking& booking, const NodeCall& call, Stream then) {
  const Pinned& which = booking.candidate.pinned;
  OperandViews tensors = call.tensors;
  // The plan may leave out rows of x that the problem skips, see WithoutSkippedRows.
  tensors[Index(Operand::kX)].stride = booking.problem.stride[Index(Operand::kX)];
  const auto run = [&] {
    return session_.loop().Run(booking, {&tensors, 1}, call.arena, session_.slabs(), call.progress,
                               &stats_.run, then);
  };
  if (which == Pinned{} || !planner_.pins()) return run();
  const Watch watch;
  Status status;
  {
    CallPins pins(session_.device());
    const Status pinned = pins.Pin(booking.problem, which, session_.AutoPinBytes(), &tensors);
    planner_.SetPins(pinned.ok() || pinned.code() == Code::kUnsupported);
    if (!pinned.ok()) {
      Log(LogLevel::kInfo, "staged, not pinned for the call: %s", pinned.message().c_str());
    }
    status = run();
  }
  stats_.run.seconds = watch.Seconds();
  return status;
}

Status Runner::Run(const Program& program, const std::vector<OperandViews>& operands, void* stream,
                   const Progress& progress, int64_t workspace) {
  stats_ = CallStats{};
  Device& device = session_.device();
  OOC_ASSIGN(const std::vector<OperandViews> tensors, LocateOperands(device, program, operands));
  OOC_TRY(CheckFileMappings(program, tensors));
  ProgramCall call{program, tensors, workspace, nullptr, nullptr, progress};
  if (IsOrdered(program, tensors)) {
    OOC_ASSIGN(call.caller, session_.Follow(stream));
  }
  if (program.front().shape.n == 0) {
    OOC_TRY(session_.Settle());
    for (size_t i = 0; i < program.size(); ++i) {
      OOC_TRY(RunEmpty(device, program[i], tensors[i], session_.arena()));
    }
    return {};
  }
  call.budget = session_.BudgetFor(tensors);
  Status status = RunProgram(call);
  if (status.code() == Code::kOutOfMemory && call.budget < session_.budget()) {
    call.budget = session_.budget();
    status = RunProgram(call);
  }
  return status;
}

Status Runner::RunProgram(const ProgramCall& call) {
  return MakeAttempts(call.budget, session_.arena(), [&](int64_t aim) -> Result<Attempt> {
    const Watch watch;
    const std::vector<Terms> terms =
        TermsOf(session_, call.program, call.tensors, aim, call.workspace);
    OOC_ASSIGN(const ProgramPlan plan, planner_.Lookup(call.program, terms));
    stats_.planning_seconds += watch.Seconds();
    ProgramCall within = call;
    within.budget = aim;
    const bool whole = plan->size() == 1 && OnDevice(call.program, terms);
    within.then = whole ? call.caller : nullptr;
    return RunSections(*plan, within);
  });
}

// In the strides of either side, as nodes may group channels otherwise than those before them.
Status Runner::Join(const std::vector<ProgramSection>& sections, const Program& program,
                    std::vector<OperandViews>* tensors) {
  const std::vector<size_t> buffer = BufferOf(program, sections);
  SectionBuffers& buffers = session_.buffers();
  SectionBuffers::Bytes bytes;
  for (size_t s = 0; s + 1 < sections.size(); ++s) {
    const Problem& writes = program[sections[s].end - 1];
    bytes.resize(std::max(bytes.size(), buffer[s] + 1));
    bytes[buffer[s]] = std::max(bytes[buffer[s]], writes.BytesOf(writes.output()));
  }
  if (!buffers.Have(bytes)) {
    OOC_TRY(session_.Settle());
    OOC_TRY(buffers.Reserve(bytes, &session_.slabs()));
  }
  for (size_t i = 0; i < program.size(); ++i) {
    for (int o = 0; o < kOperands; ++o) {
      const auto operand = static_cast<Operand>(o);
      const size_t s = SectionLeaving(program, sections, i, operand);
      if (s >= sections.size()) continue;
      const Problem& writes = program[sections[s].end - 1];
      void* const data = buffers.At(buffer[s]);
      TensorView& tensor = (*tensors)[i][o];
      tensor = {data, program[i].dtype, program[i].stride[o]};
      OOC_ASSIGN(tensor.location, session_.device().Locate(data, writes.BytesOf(writes.output())));
    }
  }
  return {};
}

Result<std::vector<int64_t>> Runner::StepsOf(const std::vector<ProgramSection>& sections,
                                             const ProgramCall& call) {
  std::vector<int64_t> steps;
  Status refused;  // of the node that needs most
  for (const ProgramSection& section : sections) {
    if (section.booking != nullptr) {
      steps.push_back(section.booking->Steps());
      continue;
    }
    const size_t node = section.begin;
    Terms terms = TermsOf(session_, call.program[node], call.tensors[node], call.workspace);
    terms.budget = call.budget;
    const Result<PlanPointer> plan = planner_.Lookup(call.program[node], terms);
    if (plan.ok()) {
      steps.push_back(plan.value()->booking.candidate.tiling.Tiles());
      continue;
    }
    const Status& why = plan.status();
    const bool small = why.code() == Code::kOutOfMemory;
    if (!small || refused.ok() || why.detail() > refused.detail()) {
      refused = Status(why).With(Format("link %zu by itself", call.program.LinkOf(node)));
    }
    if (!small) break;
  }
  if (!refused.ok()) return refused;
  return steps;
}

// A single node has been planned again where that helps.
Runner::Attempt Runner::RunSection(const ProgramSection& section, const ProgramCall& call) {
  const std::span<const OperandViews> tensors =
      std::span(call.tensors).subspan(section.begin, section.end - section.begin);
  Arena& arena = session_.arena();
  if (section.booking == nullptr) {
    const Problem& problem = call.program[section.begin];
    const Terms terms = TermsOf(session_, problem, tensors.front(), call.workspace);
    const NodeCall node{problem, tensors.front(), terms, call.caller, call.progress, arena};
    return {RunNode(node, call.budget)};
  }
  const ProgramBooking& booking = *section.booking;
  Attempt made{Reserve(arena, booking.bytes), booking.bytes};
  if (made.status.ok()) {
    made.status = session_.loop().Run(booking, tensors, arena, session_.slabs(), call.progress,
                                      &stats_.run, call.then);
  }
  made.device_is_short = arena.bytes() < booking.bytes;
  NotePlan(booking.nodes.front(), booking.tiling(), section.seconds);
  return made;
}

// The sections' tensors follow each other; what they did adds up.
Runner::Attempt Runner::RunSections(const std::vector<ProgramSection>& sections,
                                    const ProgramCall& call) {
  std::vector<OperandViews> tensors = call.tensors;
  ProgramCall joined{call.program, tensors,       call.workspace, call.caller,
                     call.then,    call.progress, call.budget};
  const Watch watch;
  if (Status status = Join(sections, call.program, &tensors); !status.ok()) return {status};
  const Result<std::vector<int64_t>> planned = StepsOf(sections, joined);
  if (!planned.ok()) return {planned.status()};
  stats_.planning_seconds += watch.Seconds();
  const std::vector<int64_t>& steps = planned.value();
  const int64_t all = std::accumulate(steps.begin(), steps.end(), int64_t{0});
  int64_t before = 0;
  RunStats sum;
  double seconds = 0.0;
  for (size_t s = 0; s < sections.size(); ++s) {
    // A node that is planned again on the way may have more tiles than were counted.
    const Progress progress = [&](int64_t done, int64_t) {
      return call.progress(before + std::min(done, steps[s]), all);
    };
    const ProgramCall part{call.program, tensors,   call.workspace,
                           call.caller,  call.then, call.progress ? progress : call.progress,
                           call.budget};
    Attempt made = RunSection(sections[s], part);
    if (!made.status.ok()) return made;
    before += steps[s];
    sum.Add(stats_.run);
    seconds += sections[s].seconds;
  }
  stats_.run = sum;
  stats_.predicted_seconds = seconds;
  return {};
}

}  // namespace oocdnn
