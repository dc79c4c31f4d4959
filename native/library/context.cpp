#include "library/context.hpp"

#include <algorithm>
#include <utility>

#include "device/wrap/wrap.hpp"
#include "library/file_mappings.hpp"
#include "library/locate.hpp"
#include "library/operands.hpp"
#include "model/search/refine.hpp"
#include "model/search/sample.hpp"
#include "model/text/plan_text.hpp"
#include "planner/in_place.hpp"

namespace oocdnn {
namespace {

// Devices that compute calls together. Two contexts of one GPU would count its memory twice; a
// timeline has the clock of one device; and engines of unlike devices differ in their bits.
Status CheckTogether(const std::vector<std::unique_ptr<DeviceContext>>& devices,
                     const ContextOptions& options) {
  if (devices.size() == 1) return {};
  if (options.trace) {
    return Error(Code::kUnsupported,
                 "a timeline is of one device, and %zu are named: leave out the trace, or name one",
                 devices.size());
  }
  std::vector<std::string> gpus;
  for (const auto& device : devices) {
    const std::string& name = device->session().device().capabilities().name;
    if (!name.starts_with("cuda")) continue;
    if (std::find(gpus.begin(), gpus.end(), name) != gpus.end()) {
      return Error(Code::kInvalidProblem, "%s is named twice", name.c_str());
    }
    gpus.push_back(name);
  }
  if (options.reproducible && !gpus.empty() && gpus.size() < devices.size()) {
    return Error(Code::kUnsupported,
                 "a GPU and the CPU differ in the last bits of their sums: a reproducible context "
                 "has devices of one kind");
  }
  return {};
}

}  // namespace

Context::Context(std::vector<std::unique_ptr<DeviceContext>> devices)
    : devices_(std::move(devices)) {
  if (devices_.size() > 1) group_ = std::make_unique<DeviceGroup>(devices_);
}

Result<std::unique_ptr<Context>> Context::Create(const ContextOptions& options) {
  OOC_ASSIGN(const std::vector<std::string> names, DevicesOf(options.device.device));
  ContextOptions one = options;
  std::vector<std::unique_ptr<DeviceContext>> devices;
  for (const std::string& name : names) {
    one.device.device = name;
    OOC_ASSIGN(std::unique_ptr<Session> session, Session::Open(one));
    devices.push_back(std::make_unique<DeviceContext>(std::move(session)));
  }
  OOC_TRY(CheckTogether(devices, options));
  return std::unique_ptr<Context>(new Context(std::move(devices)));
}

Context::~Context() = default;

const std::string& Context::name() const {
  return group_ != nullptr ? group_->name() : device().capabilities().name;
}

Result<Session::Turn> Context::TakeOnlyTurn(const char* function) {
  if (group_ == nullptr) return session().TakeTurn(function);
  return Error(
      Code::kUnsupported,
      "%s concerns one device, and this context has several (%s): create one with a single "
      "device",
      function, name().c_str());
}

Status Context::Run(const Problem& problem, const OperandViews& operands, void* stream,
                    const Progress& progress, const Scratch& scratch, int64_t workspace) {
  OOC_TRY(Validate(problem));
  OOC_TRY(CheckOperands(problem, operands));
  return group_ != nullptr ? group_->Run(problem, operands, stream, progress, workspace)
                           : first().Run(problem, operands, stream, progress, scratch, workspace);
}

Status Context::Run(const Program& program, const std::vector<OperandViews>& operands, void* stream,
                    const Progress& progress, int64_t workspace) {
  Status status = CheckOperands(program, operands);
  if (status.ok()) {
    status = group_ != nullptr ? group_->Run(program, operands, stream, progress, workspace)
                               : first().Run(program, operands, stream, progress, workspace);
  }
  return status.ok() ? std::move(status) : std::move(status).With(TextOf(program));
}

Result<double> Context::Price(const Program& program, const std::vector<OperandViews>& operands,
                              int64_t workspace) {
  const bool rows = program.traversal() == Traversal::kRows;
  const char* const function = rows ? "oocdnn_price_chain" : "oocdnn_price_chain_backward";
  if (IsCalledByThisThread()) return NestedCall(function);
  OOC_ASSIGN(const Session::Turn turn, session().TakeTurn(function));
  OOC_ASSIGN(const std::vector<OperandViews> tensors,
             LocateOperands(session().device(), program, operands));
  OOC_TRY(CheckFileMappings(program, tensors));
  if (program.front().shape.n == 0) return 0.0;
  return planner().Price(
      program, TermsOf(session(), program, tensors, session().BudgetFor(tensors), workspace));
}

Result<PlanSummary> Context::Plan(const Problem& problem, const Placement& placement) {
  OOC_TRY(CheckPlannable(problem));
  return group_ != nullptr ? group_->Plan(problem, placement) : first().Plan(problem, placement);
}

Result<PlanSummary> Context::Price(const Problem& problem, const Placement& placement,
                                   const std::string& plan) {
  OOC_TRY(CheckPlannable(problem));
  OOC_ASSIGN(const Session::Turn turn, TakeOnlyTurn("oocdnn_price"));
  const Terms terms = TermsOf(session(), problem, placement);
  const PlanRequest request = planner().CallRequestFor(problem, terms);
  const Profile& profile = planner().ProfileFor(problem);
  const Result<RankedCandidate> priced = ParsePlan(request, profile, plan);
  if (!priced.ok()) return Status(priced.status()).With(ToString(problem));
  return Summarize(request, profile, priced.value(), {}, {});
}

Status Context::UsePlan(const Problem& problem, const Placement& placement,
                        const std::string& plan) {
  OOC_TRY(CheckPlannable(problem));
  OOC_ASSIGN(const Session::Turn turn, TakeOnlyTurn("oocdnn_use_plan"));
  const Terms terms = TermsOf(session(), problem, placement);
  return planner().Prescribe(problem, terms, plan).With(ToString(problem));
}

Result<std::vector<RunnerUp>> Context::Candidates(const Problem& problem,
                                                  const Placement& placement, int best, int random,
                                                  uint64_t seed) {
  constexpr int kMost = 1000;
  OOC_TRY(CheckPlannable(problem));
  if (best < 0 || random < 0 || best > kMost || random > kMost) {
    return Error(Code::kInvalidProblem, "%d best and %d random plans: ask for 0 to %d of each",
                 best, random, kMost);
  }
  OOC_ASSIGN(const Session::Turn turn, TakeOnlyTurn("oocdnn_candidates"));
  const Terms terms = TermsOf(session(), problem, placement);
  PlanRequest request = WithoutBounce(planner().CallRequestFor(problem, terms));
  request.best = std::max(best, 1);
  const Profile& profile = planner().ProfileFor(problem);
  Result<PlanSearch> search = Search(request, profile);
  if (!search.ok()) return std::move(search).status().With(ToString(problem));
  std::vector<RankedCandidate>& found = search->ranked;
  found.resize(std::min(found.size(), static_cast<size_t>(best)));
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.cost.seconds < b.cost.seconds; });
  const std::vector<RankedCandidate> others = Sample(request, profile, random, seed);
  found.insert(found.end(), others.begin(), others.end());
  std::vector<RunnerUp> all(found.size());
  std::transform(found.begin(), found.end(), all.begin(),
                 [&](const RankedCandidate& ranked) { return RunnerUpOf(request, ranked); });
  return all;
}

Result<int64_t> Context::PlanInCore(const Problem& problem, int64_t budget, int64_t workspace) {
  OOC_TRY(Validate(problem));
  OOC_ASSIGN(const Session::Turn turn, TakeOnlyTurn("oocdnn_plan_in_core"));
  if (problem.shape.n == 0) return 0;  // there are no tiles
  Terms terms = TermsInCore(session(), problem);
  if (budget > 0) terms.budget = budget;
  if (workspace != kLimitOfContext) terms.workspace = workspace;
  Result<PlanPointer> plan = planner().Lookup(problem, terms);
  if (!plan.ok()) return std::move(plan).status().With(ToString(problem));
  // Run looks for it by the scratch memory that it is given.
  terms.budget = std::max<int64_t>(plan.value()->booking.bytes, 1);
  OOC_TRY(planner().Keep(problem, terms, plan.value()));
  return terms.budget + session().device().capabilities().alignment;
}

Result<std::vector<MicroBatch>> Context::MeasureParts(const Problem& problem, BatchPolicy policy) {
  OOC_TRY(CheckPlannable(problem));
  OOC_ASSIGN(const Session::Turn turn, TakeOnlyTurn("oocdnn_measure_parts"));
  const PlanRequest request = planner().RequestFor(problem, TermsInCore(session(), problem));
  const Profile& profile = planner().ProfileFor(problem);
  OOC_TRY(session().FreeArena());  // what is timed has its memory
  Result<std::vector<MicroBatch>> parts =
      oocdnn::MeasureParts(session().device(), request, profile, policy, &planner().prepared());
  if (!parts.ok()) return std::move(parts).status().With(ToString(problem));
  return parts;
}

Result<std::string> Context::Calibrate(const Progress& progress) {
  OOC_ASSIGN(const Session::Turn turn, TakeOnlyTurn("oocdnn_calibrate"));
  OOC_TRY(session().FreeArena());
  planner().Forget();
  MachineProfile& profile = planner().Machine();
  OOC_TRY(profile.Complete(session().options().device, progress).With("measuring this machine"));
  return profile.file();
}

Result<Refinement> Context::Refine(const Problem& problem,
                                   const std::vector<double>& busy_seconds) {
  OOC_TRY(CheckPlannable(problem));
  OOC_ASSIGN(const Session::Turn turn, TakeOnlyTurn("oocdnn_refine"));
  const Terms terms = TermsOf(session(), problem, Placement{});
  OOC_ASSIGN(const PlanPointer plan, planner().Lookup(problem, terms));
  OOC_TRY(session().Settle());
  Result<Refinement> made =
      planner().Machine().Refine(plan->request, plan->booking.candidate, busy_seconds);
  if (!made.ok()) return std::move(made).status().With(ToString(problem));
  planner().Forget();
  return made;
}

// In the progress callback those of the call that is running, as far as it has come.
CallStats Context::stats() { return group_ != nullptr ? group_->stats() : first().stats(); }

Status Context::Release() {
  if (group_ != nullptr) return group_->Release();
  OOC_ASSIGN(const Session::Turn turn, session().TakeTurn("oocdnn_release"));
  return session().Release();
}

Result<std::string> Context::Trace() {
  Device* const trace = session().stack().trace;
  if (trace == nullptr) {
    return Error(Code::kUnsupported, "this context records no timeline; create it with trace on");
  }
  OOC_ASSIGN(const Session::Turn turn, TakeOnlyTurn("oocdnn_take_trace"));
  return TakeTrace(*trace);
}

std::string Context::CheckReport() {
  std::string text;
  for (const auto& device : devices_) {
    Device* const check = device->session().stack().check;
    if (check == nullptr) continue;
    for (const std::string& report : CheckReports(*check)) text += report + "\n";
  }
  return text;
}

}  // namespace oocdnn
