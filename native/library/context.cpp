#include "library/context.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <new>
#include <vector>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "device/wrap/wrap.hpp"
#include "library/calibrate.hpp"
#include "library/operands.hpp"
#include "memory/owners.hpp"
#include "model/plan_text.hpp"
#include "model/sample.hpp"

namespace oocdnn {
namespace {

constexpr size_t kCallersKept = 16;

// With an automatic budget on a device whose memory is the host's, a call on files books no more:
// what the device holds would push the files' own pages out of memory.
constexpr int64_t kFileBudget = int64_t{256} << 20;

// A plan smaller than this is not worth another attempt.
constexpr int64_t kLeastBudget = 4096;

void Append(std::string* key, const void* data, size_t bytes) {
  key->append(static_cast<const char*>(data), bytes);
}

// Equal keys mean equal plans: every number that the planner and the engines look at.
// What two problems differ in that is of no consequence is left out: the strides of operands that
// are not used, and along dimensions of one element.
std::string KeyOf(const Problem& problem, const Homes& home, const InPlace& in_place,
                  int64_t budget) {
  std::string key;
  const int32_t small[] = {static_cast<int32_t>(problem.direction),
                           problem.rank,
                           static_cast<int32_t>(problem.dtype),
                           static_cast<int32_t>(problem.math),
                           static_cast<int32_t>(problem.epilogue.scale),
                           static_cast<int32_t>(problem.epilogue.bias),
                           static_cast<int32_t>(problem.epilogue.residual),
                           static_cast<int32_t>(problem.epilogue.activation)};
  const double scalars[] = {problem.alpha, problem.beta, problem.epilogue.residual_alpha,
                            problem.epilogue.parameter};
  Append(&key, small, sizeof small);
  Append(&key, scalars, sizeof scalars);
  Append(&key, &problem.shape, sizeof problem.shape);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Uses(operand)) continue;
    const Dims dims = problem.DimsOf(operand);
    Dims stride = problem.stride[i];
    for (size_t d = 0; d < stride.size(); ++d) stride[d] = dims[d] > 1 ? stride[d] : 0;
    Append(&key, &stride, sizeof stride);
  }
  Append(&key, &home, sizeof home);
  Append(&key, &in_place, sizeof in_place);
  Append(&key, &budget, sizeof budget);
  return key;
}

Result<int64_t> BudgetBytes(const std::string& text, Device& device) {
  OOC_ASSIGN(const int64_t free, device.FreeBytes());
  return ParseBudget(text, free);
}

// Two invariant engines may still round differently, so reproducible results come from one engine
// whatever the budget: the first that is invariant. Names of the others are left empty.
std::vector<EngineInfo> EnginesFor(const Device& device, bool reproducible) {
  std::vector<EngineInfo> engines = device.engines();
  if (!reproducible) return engines;
  bool found = false;
  for (EngineInfo& engine : engines) {
    if (found || !engine.properties.invariant) engine.name.clear();
    found = found || engine.properties.invariant;
  }
  return engines;
}

}  // namespace

// Threads do not survive a fork, so what has them lives apart from what does.
struct Context::Room {
  Room(Device& device, int threads) : loop(device, threads) {}
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
  room_ = std::make_unique<Room>(*stack_.device, options_.device.threads);
  return room_->loop.Init();
}

Context::~Context() {
  if (room_ != nullptr && room_->process != getpid()) {
    // The parent's threads are not here to be joined: leave everything to the end of the process.
    static_cast<void>(room_.release());
    static_cast<void>(arena_.release());
    static_cast<void>(slabs_.release());
    // Nobody deletes this: the pointer in it keeps the device.
    static_cast<void>(new (std::nothrow) std::shared_ptr<Device>(stack_.device));
    return;
  }
  if (const auto path = Get(Var::kTrace); path && stack_.trace != nullptr) {
    std::ofstream(*path) << TakeTrace(*stack_.trace);
  }
  if (room_ != nullptr) static_cast<void>(room_->loop.Settle());
  plans_.Clear();
  slabs_.reset();
  arena_.reset();
  room_.reset();
}

Status Context::EnterProcess() {
  if (room_->process == getpid()) return {};
  auto room = std::make_unique<Room>(*stack_.device, options_.device.threads);
  OOC_TRY(room->loop.Init().With("in a forked child"));
  static_cast<void>(room_.release());  // its threads ended with the fork
  room_ = std::move(room);
  return {};
}

// Measuring takes device memory, so that of the arena goes first.
const Profile& Context::ProfileFor(const Problem& problem) {
  if (profile_ == nullptr || profile_->Lacks(problem)) {
    static_cast<void>(room_->loop.Settle());
    arena_->Release();
  }
  return Machine().For(problem);
}

MachineProfile& Context::Machine() {
  if (profile_ == nullptr) {
    profile_ = std::make_unique<MachineProfile>(*stack_.base, options_.profile);
  }
  return *profile_;
}

int64_t Context::BudgetOf(const HostTensors& tensors) const {
  const bool files = std::any_of(tensors.begin(), tensors.end(),
                                 [](const HostTensor& tensor) { return tensor.in_file(); });
  if (!files || !auto_budget_ || !stack_.device->capabilities().shares_host_memory) return budget_;
  return std::min(budget_, kFileBudget);
}

// A device that tries engines out does so in memory of its own: it has the arena's meanwhile.
Result<PlanReport> Context::MakePlan(const PlanRequest& request, const InPlace& in_place) {
  const int64_t held = stack_.device->capabilities().tries_engines ? arena_->bytes() : 0;
  if (held == 0) return ChoosePlan(request, in_place);
  OOC_TRY(room_->loop.Settle());
  arena_->Release();
  Result<PlanReport> made = ChoosePlan(request, in_place);
  static_cast<void>(arena_->Reserve(held));  // if that fails, the call that needs it says so
  return made;
}

// In place where that can be done; else in tiles, which the device then copies within its memory.
// Tiles are also faster than what an engine does in place without the workspace that it wants.
Result<PlanReport> Context::ChoosePlan(const PlanRequest& request, const InPlace& in_place) {
  const Profile& profile = ProfileFor(request.problem);
  if (in_place == InPlace{}) return PlanAndBook(*stack_.device, request, profile, &prepared_);
  PlanRequest picky = request;
  picky.first_choice = true;
  const auto short_of_memory = [](const Result<PlanReport>& made) {
    return made.status().code() == Code::kOutOfMemory;
  };
  Result<PlanReport> made = PlanInPlace(*stack_.device, picky, profile, in_place, &prepared_);
  if (made.status().code() != Code::kUnsupported && !short_of_memory(made)) return made;
  made = PlanAndBook(*stack_.device, request, profile, &prepared_);
  if (!short_of_memory(made)) return made;
  Result<PlanReport> rest = PlanInPlace(*stack_.device, request, profile, in_place, &prepared_);
  return rest.ok() ? std::move(rest) : std::move(made);
}

Homes Context::HomesOf(const Problem& problem, const HostTensors& tensors) {
  Homes home{};
  for (int i = 0; i < kOperands; ++i) {
    const bool there = !tensors[i].in_file() && tensors[i].tier == Tier::kDevice;
    if (problem.Uses(static_cast<Operand>(i)) && there) home[i] = Home::kDevice;
  }
  return home;
}

bool Context::OnDevice(const Problem& problem, const Homes& home) {
  for (int i = 0; i < kOperands; ++i) {
    if (problem.Uses(static_cast<Operand>(i)) && home[i] == Home::kHost) return false;
  }
  return true;
}

// What is written must not be what the finishing pass reads. A mirrored filter, and vectors, which
// the engines want in the type of the sums, have slots.
InPlace Context::InPlaceOf(const Problem& problem, const HostTensors& tensors,
                           const Homes& home) const {
  InPlace in_place{};
  if (!OnDevice(problem, home)) return in_place;
  const auto alignment = static_cast<uintptr_t>(stack_.device->capabilities().alignment);
  for (const Operand operand :
       {Operand::kX, Operand::kW, Operand::kY, Operand::kResidual, Operand::kOld}) {
    const auto address = reinterpret_cast<uintptr_t>(tensors[Index(operand)].view.data);
    in_place[Index(operand)] = problem.Uses(operand) && address % alignment == 0;
  }
  if (problem.flip) in_place[Index(Operand::kW)] = false;
  const Operand output = problem.output();
  const bool reads_output =
      problem.Uses(Operand::kOld) ||
      (problem.Uses(Operand::kResidual) &&
       tensors[Index(Operand::kResidual)].view.data == tensors[Index(output)].view.data);
  if (reads_output) in_place[Index(output)] = false;
  return in_place;
}

PlanRequest Context::RequestFor(const Problem& problem, const Homes& home, int64_t budget) const {
  PlanRequest request;
  request.problem = problem;
  request.home = home;
  request.budget = budget;
  // Only what crosses a wire bounces.
  request.bounce_bytes = OnDevice(problem, home)
                             ? 0
                             : BounceWithin(budget, stack_.device->capabilities().bounce_bytes);
  request.engines = EnginesFor(*stack_.device, options_.reproducible);
  request.reproducible = options_.reproducible;
  return request;
}

Result<PlanPointer> Context::Lookup(const Problem& problem, const Homes& home,
                                    const InPlace& in_place, int64_t budget) {
  const std::string key = KeyOf(problem, home, in_place, budget);
  if (const PlanPointer* const kept = plans_.Find(key)) return *kept;
  const PlanRequest request = RequestFor(problem, home, budget);
  Result<PlanReport> made = MakePlan(request, in_place);
  if (!made.ok() && made.status().code() == Code::kOutOfMemory) {
    const int64_t works =
        WorkingBudget(*stack_.device, request, ProfileFor(problem), made.status());
    return std::move(made)
        .status()
        .With(Format("a budget of %s is too small, %lld bytes work", BytesText(budget).c_str(),
                     static_cast<long long>(works)))
        .WithDetail(works);
  }
  OOC_ASSIGN(PlanReport report, std::move(made));
  if (Logs(LogLevel::kDebug)) {
    Log(LogLevel::kDebug, "plan %s", ToText(SummaryOf(report, ProfileFor(problem))).c_str());
  }
  if (plans_.full()) OOC_TRY(room_->loop.Settle());  // the one that goes may still be run
  return plans_.Put(key, std::make_shared<const PlanReport>(std::move(report)));
}

Result<PlanSummary> Context::Plan(const Problem& problem) {
  OOC_TRY(CheckPlannable(problem));
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  Result<PlanPointer> plan = Lookup(problem, {}, {}, budget_);
  if (!plan.ok()) return std::move(plan).status().With(ToString(problem));
  const PlanReport& report = *plan.value();
  PlanSummary summary = SummaryOf(report, ProfileFor(problem));
  if (!stack_.device->capabilities().reads_host) {
    summary.host_bytes =
        Staging::PageableBytes(problem, report.booking.candidate, options_.host_cap);
  }
  return summary;
}

Result<PlanSummary> Context::Price(const Problem& problem, const std::string& plan) {
  OOC_TRY(CheckPlannable(problem));
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  const PlanRequest request = RequestFor(problem, {}, budget_);
  const Profile& profile = ProfileFor(problem);
  OOC_ASSIGN(const RankedCandidate priced, ParsePlan(request, profile, plan));
  return Summarize(request, profile, priced, {}, {});
}

Status Context::UsePlan(const Problem& problem, const std::string& plan) {
  OOC_TRY(CheckPlannable(problem));
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  PlanReport report;
  report.request = RequestFor(problem, {}, budget_);
  OOC_ASSIGN(const RankedCandidate priced, ParsePlan(report.request, ProfileFor(problem), plan));
  report.cost = priced.cost;
  if (const int64_t bytes = priced.cost.device_bytes; bytes > budget_) {
    return Error(Code::kOutOfMemory,
                 "the plan's slots take %s of the device, the budget is %s: shorter tiles or fewer "
                 "slots take less",
                 BytesText(bytes).c_str(), BytesText(budget_).c_str())
        .WithDetail(bytes);
  }
  OOC_ASSIGN(report.booking, Book(*stack_.device, report.request, priced.candidate, budget_));
  ++prepared_;
  OOC_TRY(room_->loop.Settle());  // the plan that goes may still be run
  std::string key = KeyOf(problem, {}, {}, budget_);
  plans_.Forget(key);
  plans_.Put(std::move(key), std::make_shared<const PlanReport>(std::move(report)));
  return {};
}

Result<std::vector<RunnerUp>> Context::Candidates(const Problem& problem, int best, int random,
                                                  uint64_t seed) {
  OOC_TRY(CheckPlannable(problem));
  if (best < 0 || random < 0) {
    return Error(Code::kInvalidProblem, "%d best and %d random plans were asked for", best, random);
  }
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  PlanRequest request = RequestFor(problem, {}, budget_);
  request.best = std::max(best, 1);
  const Profile& profile = ProfileFor(problem);
  OOC_ASSIGN(PlanSearch search, Search(request, profile));
  search.ranked.resize(std::min(search.ranked.size(), static_cast<size_t>(best)));
  std::vector<RankedCandidate> all = Sample(request, profile, random, seed);
  all.insert(all.begin(), search.ranked.begin(), search.ranked.end());
  std::vector<RunnerUp> found(all.size());
  std::transform(all.begin(), all.end(), found.begin(),
                 [&](const RankedCandidate& ranked) { return RunnerUpOf(request, ranked); });
  return found;
}

Result<int64_t> Context::PlanInCore(const Problem& problem, int64_t budget) {
  OOC_TRY(Validate(problem));
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  const int64_t alignment = stack_.device->capabilities().alignment;
  HostTensors tensors;
  for (int i = 0; i < kOperands; ++i) {
    tensors[i].tier = Tier::kDevice;
    tensors[i].view.data = reinterpret_cast<void*>(alignment * (i + 1));  // NOLINT: any address
  }
  const Homes home = HomesOf(problem, tensors);
  const InPlace in_place = InPlaceOf(problem, tensors, home);
  Result<PlanPointer> plan = Lookup(problem, home, in_place, budget > 0 ? budget : budget_);
  if (!plan.ok()) return std::move(plan).status().With(ToString(problem));
  // Run looks for it by the scratch memory that it is given.
  const int64_t bytes = std::max<int64_t>(plan.value()->booking.bytes, 1);
  std::string key = KeyOf(problem, home, in_place, bytes);
  if (plans_.Find(key) == nullptr) {
    if (plans_.full()) OOC_TRY(room_->loop.Settle());
    plans_.Put(std::move(key), plan.value());
  }
  return bytes + alignment;
}

Result<Stream> Context::CallerOf(const HostTensors& tensors, void* stream) {
  const bool ordered = std::any_of(tensors.begin(), tensors.end(), [](const HostTensor& tensor) {
    return tensor.tier != Tier::kPageable;
  });
  if (!ordered) return Stream{};
  return room_->CallerOf(*stack_.device, stream);
}

Status Context::Run(const Problem& problem, const HostTensors& operands, void* stream,
                    const Progress& progress, const Scratch& scratch) {
  OOC_TRY(Validate(problem));
  OOC_TRY(CheckOperands(problem, operands));
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  stats_ = CallStats{};
  HostTensors tensors = operands;
  OOC_TRY(LocateOperands(*stack_.device, problem, &tensors));
  OOC_ASSIGN(const Stream caller, CallerOf(tensors, stream));
  if (caller != nullptr) OOC_TRY(room_->loop.Follow(caller));
  if (problem.shape.n == 0) {
    OOC_TRY(room_->loop.Settle());
    return RunEmpty(*stack_.device, problem, tensors, *arena_);
  }

  const Homes home = HomesOf(problem, tensors);
  const InPlace in_place = InPlaceOf(problem, tensors, home);
  if (const int64_t alignment = stack_.device->capabilities().alignment;
      scratch.bytes > alignment && OnDevice(problem, home)) {
    const auto address = reinterpret_cast<uintptr_t>(scratch.data);
    const auto first = RoundUp(static_cast<int64_t>(address), alignment);
    Arena lent(*stack_.device, reinterpret_cast<void*>(first),  // NOLINT: aligned
               scratch.bytes - alignment);
    const Call within{problem, tensors, home, in_place, caller, progress, lent};
    Status status = RunWithin(within, lent.bytes());
    if (status.code() != Code::kOutOfMemory) return std::move(status).With(ToString(problem));
  }
  const Call call{problem, tensors, home, in_place, caller, progress, *arena_};
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
  // With all operands on the device the caller's stream need not wait for the host.
  const Stream then = OnDevice(call.problem, call.home) ? call.caller : nullptr;
  Status short_of;
  for (int64_t aim = budget; aim >= kLeastBudget;) {
    Result<PlanPointer> plan = Lookup(call.problem, call.home, call.in_place, aim);
    if (!plan.ok()) {
      if (short_of.ok()) return std::move(plan).status();
      return std::move(short_of).With(
          Format("planned again with %s and failed", BytesText(aim).c_str()));
    }
    const PlanReport& report = *plan.value();
    if (report.booking.bytes > call.arena.bytes()) OOC_TRY(room_->loop.Settle());
    Status status = call.arena.Reserve(report.booking.bytes);
    if (status.ok()) {
      status = room_->loop.Run(report.booking, call.tensors, call.arena, *slabs_, call.progress,
                               &stats_.run, then);
    }
    stats_.peak_device_bytes = call.arena.peak();
    stats_.device_allocations = call.arena.allocations() - allocations;
    stats_.prepared = prepared_ - prepared;
    stats_.budget_bytes = budget;
    stats_.predicted_seconds = report.cost.seconds;
    for (int i = 0; i < kAxes; ++i) {
      stats_.split[i] = report.booking.candidate.tiling.Count(static_cast<Axis>(i));
    }
    stats_.engine = report.booking.executable->engine();
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
  return Error(Code::kOutOfMemory,
               "a budget of %s is below the smallest tile; give at least 256 KiB",
               BytesText(budget).c_str())
      .WithDetail(int64_t{256} << 10);
}

int64_t Context::AutoPinBytes() const {
  const bool wanted = Get(Var::kAutoPin).value_or("1") != "0";
  return wanted && !stack_.device->capabilities().reads_host ? options_.host_cap : 0;
}

CallStats Context::stats() {
  const std::lock_guard turn(turn_);
  return stats_;
}

Status Context::Release() {
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  OOC_TRY(room_->loop.Settle());
  arena_->Release();
  slabs_->Release();
  return {};
}

Result<std::string> Context::Calibrate(const Progress& progress) {
  const std::lock_guard turn(turn_);
  OOC_TRY(EnterProcess());
  OOC_TRY(room_->loop.Settle());
  arena_->Release();
  MachineProfile& profile = Machine();
  OOC_TRY(profile.Complete(progress).With("measuring this machine"));
  plans_.Clear();
  return profile.file();
}

Result<std::string> Context::Trace() {
  if (stack_.trace == nullptr) {
    return Error(Code::kUnsupported, "this context records no timeline; create it with trace on");
  }
  const std::lock_guard turn(turn_);
  return TakeTrace(*stack_.trace);
}

std::string Context::CheckReport() {
  std::string text;
  if (stack_.check == nullptr) return text;
  for (const std::string& report : CheckReports(*stack_.check)) text += report + "\n";
  return text;
}

}  // namespace oocdnn
