#include "library/context.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <new>
#include <vector>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "base/files.hpp"
#include "base/log.hpp"
#include "device/wrap/wrap.hpp"
#include "library/call_pins.hpp"
#include "library/file_mappings.hpp"
#include "library/operands.hpp"
#include "memory/owners.hpp"
#include "store/plan_key.hpp"

namespace oocdnn {
namespace {

constexpr size_t kCallersKept = 16;

// With an automatic budget on a device whose memory is the host's, a call on files books no more:
// what the device holds would push the files' own pages out of memory.
constexpr int64_t kFileBudget = int64_t{256} << 20;

// A plan smaller than this is not worth another attempt.
constexpr int64_t kLeastBudget = 4096;

Result<int64_t> BudgetBytes(const std::string& text, Device& device) {
  OOC_ASSIGN(const int64_t free, device.FreeBytes());
  return ParseBudget(text, free);
}

}  // namespace

// Threads do not survive a fork, so what has them lives apart from what does.
struct Context::ThreadState {
  ThreadState(Device& device, int threads) : loop(device, threads) {}
  const pid_t process = getpid();
  TileLoop loop;
  std::vector<std::pair<void*, OwnedStream>> callers;  // streams of callers, by their own handles

  Result<Stream> CallerOf(Device& device, void* native) {
    for (const auto& [known, stream] : callers) {
      if (known == native) return stream.get();
    }
    if (callers.size() == kCallersKept) callers.erase(callers.begin());
    OOC_ASSIGN(OwnedStream stream, AdoptStream(device, native));
    callers.emplace_back(native, std::move(stream));
    return callers.back().second.get();
  }
};

std::string PlanFileOf(const ContextOptions& options) {
  const std::string& wrap = options.device.wrap;
  const bool real =
      wrap.find("limit") == std::string::npos && wrap.find("fault") == std::string::npos;
  const std::string& asked = options.plans.empty() ? options.profile : options.plans;
  if (!real || asked == "none") return "";
  return options.plans.empty() ? DefaultPlanFile() : options.plans;
}

Context::Context(ContextOptions options) : options_(std::move(options)) {}

Result<std::unique_ptr<Context>> Context::Create(const ContextOptions& options) {
  std::unique_ptr<Context> context(new Context(options));
  OOC_TRY(context->Open().With("opening a context"));
  return context;
}

Status Context::Open() {
  if (options_.trace) {
    options_.device.wrap += options_.device.wrap.empty() ? "trace" : ",trace";
  }
  OOC_ASSIGN(stack_, MakeDevice(options_.device));
  auto_budget_ = options_.budget.empty() || options_.budget == "auto";
  OOC_ASSIGN(budget_, BudgetBytes(options_.budget, *stack_.device));
  arena_ = std::make_unique<Arena>(*stack_.device);
  if (options_.host_cap == 0) options_.host_cap = StagingBytes(*stack_.device);
  slabs_ = std::make_unique<Slabs>(*stack_.device, options_.host_cap);
  buffers_ = std::make_unique<SectionBuffers>(stack_.device, options_.host_cap);
  memory_ = std::make_unique<PlanMemory>(PlanFileOf(options_), PlannerOf(*stack_.base));
  thread_state_ = std::make_unique<ThreadState>(*stack_.device, options_.device.threads);
  return thread_state_->loop.Init();
}

Context::~Context() {
  if (thread_state_ != nullptr && thread_state_->process != getpid()) {
    // The parent's threads are not here to be joined: leave everything to the end of the process.
    static_cast<void>(thread_state_.release());
    static_cast<void>(arena_.release());
    static_cast<void>(slabs_.release());
    static_cast<void>(buffers_.release());
    // Nobody deletes this: the pointer in it keeps the device.
    static_cast<void>(new (std::nothrow) std::shared_ptr<Device>(stack_.device));
    return;
  }
  if (const auto path = Get(Var::kTrace); path && stack_.trace != nullptr) {
    const Status written = WriteFile(*path, TakeTrace(*stack_.trace));
    if (!written.ok()) Log(LogLevel::kWarn, "the trace %s", written.message().c_str());
  }
  if (thread_state_ != nullptr) static_cast<void>(thread_state_->loop.Settle());
  plans_.Clear();
  chains_.Clear();
  gradients_.Clear();
  prescribed_.clear();
  buffers_.reset();
  slabs_.reset();
  arena_.reset();
  thread_state_.reset();
}

// The thread that has the turn comes again only from a progress callback, or from a signal handler
// that ran there, and would wait for its own call.
Result<Context::Turn> Context::TakeTurn(const char* function) {
  if (IsCalledByThisThread()) {
    return Error(Code::kDeviceError,
                 "%s was called from the context's own progress callback, or from a signal handler "
                 "within it, while the call that it reports is running: use another context there, "
                 "or call after that one has returned",
                 function);
  }
  Turn turn(turn_);
  OOC_TRY(EnterProcess());
  return turn;
}

Status Context::EnterProcess() {
  if (thread_state_->process == getpid()) return {};
  auto state = std::make_unique<ThreadState>(*stack_.device, options_.device.threads);
  OOC_TRY(state->loop.Init().With("in a forked child"));
  static_cast<void>(thread_state_.release());  // its threads ended with the fork
  thread_state_ = std::move(state);
  return {};
}

TileLoop& Context::Loop() { return thread_state_->loop; }

Status Context::Settle() { return thread_state_->loop.Settle(); }

int64_t Context::BudgetOf(const HostTensors& tensors) const {
  const bool files = std::any_of(tensors.begin(), tensors.end(),
                                 [](const HostTensor& tensor) { return tensor.in_file(); });
  if (!files || !auto_budget_ || !stack_.device->capabilities().shares_host_memory) return budget_;
  return std::min(budget_, kFileBudget);
}

int64_t Context::BudgetOf(const std::vector<HostTensors>& tensors) const {
  int64_t budget = budget_;
  for (const HostTensors& link : tensors) budget = std::min(budget, BudgetOf(link));
  return budget;
}

Homes Context::HomesOf(const Problem& problem, const HostTensors& tensors) const {
  const bool reached = stack_.device->capabilities().reads_host;
  Homes home{};
  for (int i = 0; i < kOperands; ++i) {
    if (!problem.Has(static_cast<Operand>(i))) continue;
    if (tensors[i].in_file()) {
      home[i] = Home::kFile;
    } else if (tensors[i].tier == Tier::kDevice) {
      home[i] = Home::kDevice;
    } else if (tensors[i].tier == Tier::kPageable && !reached) {
      home[i] = Home::kPageable;
    }
  }
  return home;
}

// What is written must not be what the finishing pass reads. A mirrored filter, and vectors, which
// the engines want in the type of the sums, have slots.
InPlace Context::InPlaceOf(const Problem& problem, const HostTensors& tensors,
                           const Homes& home) const {
  InPlace in_place{};
  if (!OnDevice(problem, home)) return in_place;
  const auto alignment = static_cast<uintptr_t>(stack_.device->capabilities().tile_alignment);
  for (const Operand operand :
       {Operand::kX, Operand::kW, Operand::kY, Operand::kResidual, Operand::kOld, Operand::kZ,
        Operand::kSaved, Operand::kInput, Operand::kDw}) {
    const auto address = reinterpret_cast<uintptr_t>(tensors[Index(operand)].view.data);
    in_place[Index(operand)] = problem.Has(operand) && address % alignment == 0;
  }
  if (problem.prologue.any()) in_place[Index(problem.source())] = false;  // it changes its tile
  const Operand output = problem.output();
  if (problem.flip) {
    in_place[Index(Operand::kW)] = in_place[Index(Operand::kDw)] = false;
    if (output == Operand::kW) {
      in_place[Index(Operand::kOld)] = in_place[Index(Operand::kResidual)] = false;
    }
  }
  const bool reads_output =
      problem.Uses(Operand::kOld) ||
      (problem.Uses(Operand::kResidual) &&
       tensors[Index(Operand::kResidual)].view.data == tensors[Index(output)].view.data);
  if (reads_output) in_place[Index(output)] = false;
  return in_place;
}

Context::Terms Context::TermsOf(const Problem& problem, const HostTensors& tensors,
                                int64_t workspace) const {
  const Homes home = HomesOf(problem, tensors);
  return {home, InPlaceOf(problem, tensors, home), budget_,
          workspace == kLimitOfContext ? options_.workspace : workspace};
}

Context::Terms Context::TermsOf(const Problem& problem, const Placement& placement) const {
  HostTensors tensors;
  for (int i = 0; i < kOperands; ++i) {
    const Place place = placement.place[static_cast<size_t>(i)];
    if (place == Place::kPinned) tensors[i].tier = Tier::kPinned;
    if (place == Place::kFile) tensors[i].fd = 0;  // any file
    if (place != Place::kDevice) continue;
    tensors[i].tier = Tier::kDevice;
    const int64_t address = stack_.device->capabilities().alignment * (i + 1);
    tensors[i].view.data = reinterpret_cast<void*>(address);  // NOLINT: any address
  }
  return TermsOf(problem, tensors, kLimitOfContext);
}

Context::Terms Context::TermsInCore(const Problem& problem) const {
  Placement device;
  device.place.fill(Place::kDevice);
  return TermsOf(problem, device);
}

Result<Stream> Context::CallerOf(const HostTensors& tensors, void* stream) {
  const bool ordered = std::any_of(tensors.begin(), tensors.end(), [](const HostTensor& tensor) {
    return tensor.tier != Tier::kPageable;
  });
  if (!ordered) return Stream{};
  return thread_state_->CallerOf(*stack_.device, stream);
}

Status Context::Run(const Problem& problem, const HostTensors& operands, void* stream,
                    const Progress& progress, const Scratch& scratch, int64_t workspace) {
  OOC_TRY(Validate(problem));
  OOC_TRY(CheckOperands(problem, operands));
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_run"));
  stats_ = CallStats{};
  HostTensors tensors = operands;
  OOC_TRY(LocateOperands(*stack_.device, problem, &tensors));
  OOC_TRY(CheckFileMappings(problem, tensors));
  OOC_ASSIGN(const Stream caller, CallerOf(tensors, stream));
  if (caller != nullptr) OOC_TRY(thread_state_->loop.Follow(caller));
  if (problem.shape.n == 0) {
    OOC_TRY(thread_state_->loop.Settle());
    return RunEmpty(*stack_.device, problem, tensors, *arena_);
  }

  const Terms terms = TermsOf(problem, tensors, workspace);
  if (const int64_t alignment = stack_.device->capabilities().alignment;
      scratch.bytes > alignment && OnDevice(problem, terms.home)) {
    const auto address = reinterpret_cast<uintptr_t>(scratch.data);
    const auto first = RoundUp(static_cast<int64_t>(address), alignment);
    Arena lent(*stack_.device, reinterpret_cast<void*>(first),  // NOLINT: aligned
               scratch.bytes - alignment);
    const Call within{problem, tensors, terms, caller, progress, lent};
    Status status = RunWithin(within, lent.bytes());
    if (status.code() != Code::kOutOfMemory) return std::move(status).With(ToString(problem));
  }
  const Call call{problem, tensors, terms, caller, progress, *arena_};
  const int64_t budget = BudgetOf(tensors);
  Status status = RunWithin(call, budget);
  if (status.code() == Code::kOutOfMemory && budget < budget_) status = RunWithin(call, budget_);
  if (status.ok()) return {};
  return std::move(status).With(ToString(problem));
}

// What was free when the budget was set may be gone, on the device or on the host: then plan again
// with what there is, and say who holds what if that fails too.
Status Context::RunWithin(const Call& call, int64_t budget) {
  const int64_t allocations = call.arena.allocations(), prepared = prepared_;
  std::chrono::duration<double> planning{};
  // With all operands on the device the caller's stream need not wait for the host.
  const Stream then = OnDevice(call.problem, call.terms.home) ? call.caller : nullptr;
  Status short_of;
  for (int64_t aim = budget;;) {
    Terms terms = call.terms;
    terms.budget = aim;
    const auto begin = std::chrono::steady_clock::now();
    Result<PlanPointer> plan = Lookup(call.problem, terms);
    planning += std::chrono::steady_clock::now() - begin;
    if (!plan.ok()) {
      if (short_of.ok()) return std::move(plan).status();
      return std::move(short_of).With(
          Format("planned again with %s and failed", BytesText(aim).c_str()));
    }
    const PlanReport& report = *plan.value();
    if (report.booking.bytes > call.arena.bytes()) OOC_TRY(thread_state_->loop.Settle());
    Status status = call.arena.Reserve(report.booking.bytes);
    if (status.ok()) status = RunPinned(report.booking, call, then);
    stats_.peak_device_bytes = call.arena.peak();
    stats_.device_allocations = call.arena.allocations() - allocations;
    stats_.prepared = prepared_ - prepared;
    stats_.budget_bytes = budget;
    stats_.predicted_seconds = report.cost.seconds;
    stats_.planning_seconds = planning.count();
    for (int i = 0; i < kAxes; ++i) {
      stats_.split[i] = report.booking.candidate.tiling.Count(static_cast<Axis>(i));
    }
    stats_.engine = report.booking.usual.executable().engine();
    if (status.code() != Code::kOutOfMemory) return status;

    // Staging shrinks with the tiles; device memory is asked for once more, within what is free.
    const bool device = call.arena.bytes() < report.booking.bytes;
    if (device && !short_of.ok()) return std::move(status).With(short_of.message());
    Log(LogLevel::kInfo, "planning again: %s", status.message().c_str());
    int64_t next = report.booking.bytes / 2;
    if (device) {
      Result<int64_t> free = stack_.device->FreeBytes();
      if (free.ok()) next = std::min(report.booking.bytes - 1, free.value() / 10 * 9);
      short_of = status;
    }
    if (next < kLeastBudget) return status;
    aim = next;
  }
}

// The loop returns with nothing in flight: whoever has memory that is not on the device waits.
// Where the system refuses to pin once, it is not asked again: it would look at all pages each
// time. Another call's pins are gone when the next one begins.
Status Context::RunPinned(const Booking& booking, const Call& call, Stream then) {
  const Pinned& which = booking.candidate.pinned;
  const auto run = [&](const HostTensors& tensors) {
    return thread_state_->loop.Run(booking, tensors, call.arena, *slabs_, call.progress,
                                   &stats_.run, then);
  };
  if (which == Pinned{} || !pins_) return run(call.tensors);
  const auto begin = std::chrono::steady_clock::now();
  Status status;
  {
    CallPins pins(*stack_.device);
    HostTensors tensors = call.tensors;
    const Status pinned = pins.Pin(call.problem, which, AutoPinBytes(), &tensors);
    pins_ = pinned.ok() || pinned.code() == Code::kUnsupported;
    if (!pinned.ok()) {
      Log(LogLevel::kInfo, "staged, not pinned for the call: %s", pinned.message().c_str());
    }
    status = run(tensors);
  }
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - begin;
  stats_.run.seconds = all.count();
  return status;
}

int64_t Context::AutoPinBytes() const {
  const bool wanted = Get(Var::kAutoPin).value_or("1") != "0";
  return wanted && !stack_.device->capabilities().reads_host ? options_.host_cap : 0;
}

// In the progress callback those of the call that is running, as far as it has come.
CallStats Context::stats() {
  if (IsCalledByThisThread()) return stats_;
  const std::lock_guard turn(turn_);
  return stats_;
}

Status Context::Release() {
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_release"));
  OOC_TRY(thread_state_->loop.Settle());
  arena_->Release();
  arena_->ForgetPeak();
  slabs_->Release();
  buffers_->Release(slabs_.get());
  return {};
}

Result<std::string> Context::Trace() {
  if (stack_.trace == nullptr) {
    return Error(Code::kUnsupported, "this context records no timeline; create it with trace on");
  }
  OOC_ASSIGN(const Turn turn, TakeTurn("oocdnn_take_trace"));
  return TakeTrace(*stack_.trace);
}

std::string Context::CheckReport() {
  std::string text;
  if (stack_.check == nullptr) return text;
  for (const std::string& report : CheckReports(*stack_.check)) text += report + "\n";
  return text;
}

}  // namespace oocdnn
