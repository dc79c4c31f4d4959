#include "library/context.hpp"

#include <algorithm>
#include <utility>

#include "device/wrap/wrap.hpp"
#include "library/file_mappings.hpp"
#include "library/locate.hpp"
#include "library/operands.hpp"
#include "model/price/cost.hpp"
#include "model/search/refine.hpp"
#include "model/search/sample.hpp"
#include "model/text/plan_text.hpp"
#include "planner/in_place.hpp"

namespace oocdnn {
namespace {

// Adds the candidates and the refusals of a new search to a remembered plan.
void AddOthers(const Profile& profile, PlanReport* report) {
  Result<PlanSearch> search =
      Search(WithoutBounce(report->request), report->rate_updates.AddedTo(profile));
  if (!search.ok()) return;
  report->ranked = std::move(search->ranked);
  report->refused = std::move(search->refused);
}

}  // namespace

Context::Context(std::unique_ptr<Session> session)
    : session_(std::move(session)), planner_(*session_), runner_(*session_, planner_) {}

Result<std::unique_ptr<Context>> Context::Create(const ContextOptions& options) {
  const std::vector<std::string> names = DevicesOf(options.device.device);
  ContextOptions one = options;
  std::vector<std::unique_ptr<Context>> contexts;
  for (const std::string& name : names) {
    one.device.device = name;
    OOC_ASSIGN(std::unique_ptr<Session> session, Session::Open(one));
    contexts.emplace_back(new Context(std::move(session)));
  }
  std::unique_ptr<Context> first = std::move(contexts.front());
  contexts.erase(contexts.begin());
  if (!contexts.empty()) {
    first->group_ = std::make_unique<DeviceGroup>(*first, std::move(contexts), names);
  }
  return first;
}

Context::~Context() { session_->End(); }

const std::string& Context::name() const {
  return group_ != nullptr ? group_->name() : device().capabilities().name;
}

Status Context::NeedOneDevice(const char* function) const {
  if (group_ == nullptr) return {};
  return Error(
      Code::kUnsupported,
      "%s concerns one device, and this context has several (%s): create one with a single "
      "device",
      function, name().c_str());
}

Status Context::RunHere(const Problem& problem, const OperandViews& operands, void* stream,
                        const Progress& progress, const Scratch& scratch, int64_t workspace) {
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_run"));
  return runner_.Run(problem, operands, stream, progress, scratch, workspace);
}

Status Context::RunHere(const Program& program, const std::vector<OperandViews>& operands,
                        void* stream, const Progress& progress, int64_t workspace) {
  const bool rows = program.traversal() == Traversal::kRows;
  OOC_ASSIGN(const Session::Turn turn,
             session_->TakeTurn(rows ? "oocdnn_run_chain" : "oocdnn_run_chain_backward"));
  return runner_.Run(program, operands, stream, progress, workspace);
}

Status Context::Run(const Problem& problem, const OperandViews& operands, void* stream,
                    const Progress& progress, const Scratch& scratch, int64_t workspace) {
  OOC_TRY(Validate(problem));
  OOC_TRY(CheckOperands(problem, operands));
  return group_ != nullptr ? group_->Run(problem, operands, stream, progress, workspace)
                           : RunHere(problem, operands, stream, progress, scratch, workspace);
}

Status Context::Run(const Program& program, const std::vector<OperandViews>& operands, void* stream,
                    const Progress& progress, int64_t workspace) {
  Status status = CheckOperands(program, operands);
  if (status.ok()) {
    status = group_ != nullptr ? group_->Run(program, operands, stream, progress, workspace)
                               : RunHere(program, operands, stream, progress, workspace);
  }
  return status.ok() ? std::move(status) : std::move(status).With(TextOf(program));
}

Status Context::Await(void* stream) {
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_run"));
  OOC_TRY(session_->Follow(stream).status());
  return session_->Settle();
}

Result<double> Context::FloorOf(const Problem& problem, const OperandViews& operands) {
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_run"));
  OperandViews tensors = operands;
  OOC_TRY(LocateOperands(session_->device(), problem, &tensors));
  const Terms terms = TermsOf(*session_, problem, tensors, kLimitOfContext);
  return oocdnn::FloorOf(planner_.CallRequestFor(problem, terms), planner_.ProfileFor(problem));
}

Result<double> Context::FloorOf(const Problem& problem, const Placement& placement) {
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_plan"));
  const Terms terms = TermsOf(*session_, problem, placement);
  return oocdnn::FloorOf(planner_.CallRequestFor(problem, terms), planner_.ProfileFor(problem));
}

Result<double> Context::Price(const Program& program, const std::vector<OperandViews>& operands,
                              int64_t workspace) {
  const bool rows = program.traversal() == Traversal::kRows;
  OOC_ASSIGN(const Session::Turn turn,
             session_->TakeTurn(rows ? "oocdnn_price_chain" : "oocdnn_price_chain_backward"));
  OOC_ASSIGN(const std::vector<OperandViews> tensors,
             LocateOperands(session_->device(), program, operands));
  OOC_TRY(CheckFileMappings(program, tensors));
  if (program.front().shape.n == 0) return 0.0;
  return planner_.Price(
      program, TermsOf(*session_, program, tensors, session_->BudgetFor(tensors), workspace));
}

Result<PlanSummary> Context::Plan(const Problem& problem, const Placement& placement) {
  OOC_TRY(CheckPlannable(problem));
  return group_ != nullptr ? group_->Plan(problem, placement) : PlanHere(problem, placement);
}

Result<PlanSummary> Context::PlanHere(const Problem& problem, const Placement& placement) {
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_plan"));
  const Terms terms = TermsOf(*session_, problem, placement);
  Result<PlanPointer> plan = planner_.Lookup(problem, terms);
  if (!plan.ok()) return std::move(plan).status().With(ToString(problem));
  PlanReport report = *plan.value();
  const Profile& profile = planner_.ProfileFor(problem);
  if (report.remembered) AddOthers(profile, &report);
  PlanSummary summary = SummaryOf(report, profile);
  if (!session_->device().capabilities().reads_host && !OnDevice(problem, terms.tiers)) {
    const Booking& booking = report.booking;
    summary.host_bytes =
        Staging::PageableBytes(booking.problem, booking.candidate, session_->options().host_cap);
  }
  return summary;
}

Result<PlanSummary> Context::Price(const Problem& problem, const Placement& placement,
                                   const std::string& plan) {
  OOC_TRY(CheckPlannable(problem));
  OOC_TRY(NeedOneDevice("oocdnn_price"));
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_price"));
  const Terms terms = TermsOf(*session_, problem, placement);
  const PlanRequest request = planner_.CallRequestFor(problem, terms);
  const Profile& profile = planner_.ProfileFor(problem);
  const Result<RankedCandidate> priced = ParsePlan(request, profile, plan);
  if (!priced.ok()) return Status(priced.status()).With(ToString(problem));
  return Summarize(request, profile, priced.value(), {}, {});
}

Status Context::UsePlan(const Problem& problem, const Placement& placement,
                        const std::string& plan) {
  OOC_TRY(CheckPlannable(problem));
  OOC_TRY(NeedOneDevice("oocdnn_use_plan"));
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_use_plan"));
  const Terms terms = TermsOf(*session_, problem, placement);
  return planner_.Prescribe(problem, terms, plan).With(ToString(problem));
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
  OOC_TRY(NeedOneDevice("oocdnn_candidates"));
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_candidates"));
  const Terms terms = TermsOf(*session_, problem, placement);
  PlanRequest request = WithoutBounce(planner_.CallRequestFor(problem, terms));
  request.best = std::max(best, 1);
  const Profile& profile = planner_.ProfileFor(problem);
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
  OOC_TRY(NeedOneDevice("oocdnn_plan_in_core"));
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_plan_in_core"));
  if (problem.shape.n == 0) return 0;  // there are no tiles
  Terms terms = TermsInCore(*session_, problem);
  if (budget > 0) terms.budget = budget;
  if (workspace != kLimitOfContext) terms.workspace = workspace;
  Result<PlanPointer> plan = planner_.Lookup(problem, terms);
  if (!plan.ok()) return std::move(plan).status().With(ToString(problem));
  // Run looks for it by the scratch memory that it is given.
  terms.budget = std::max<int64_t>(plan.value()->booking.bytes, 1);
  OOC_TRY(planner_.Keep(problem, terms, plan.value()));
  return terms.budget + session_->device().capabilities().alignment;
}

Result<std::vector<MicroBatch>> Context::MeasureParts(const Problem& problem, BatchPolicy policy) {
  OOC_TRY(CheckPlannable(problem));
  OOC_TRY(NeedOneDevice("oocdnn_measure_parts"));
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_measure_parts"));
  const PlanRequest request = planner_.RequestFor(problem, TermsInCore(*session_, problem));
  const Profile& profile = planner_.ProfileFor(problem);
  OOC_TRY(session_->FreeArena());  // what is timed has its memory
  Result<std::vector<MicroBatch>> parts =
      oocdnn::MeasureParts(session_->device(), request, profile, policy, &planner_.prepared());
  if (!parts.ok()) return std::move(parts).status().With(ToString(problem));
  return parts;
}

Result<std::string> Context::Calibrate(const Progress& progress) {
  OOC_TRY(NeedOneDevice("oocdnn_calibrate"));
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_calibrate"));
  OOC_TRY(session_->FreeArena());
  planner_.Forget();
  MachineProfile& profile = planner_.Machine();
  OOC_TRY(profile.Complete(session_->options().device, progress).With("measuring this machine"));
  return profile.file();
}

Result<Refinement> Context::Refine(const Problem& problem,
                                   const std::vector<double>& busy_seconds) {
  OOC_TRY(CheckPlannable(problem));
  OOC_TRY(NeedOneDevice("oocdnn_refine"));
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_refine"));
  const Terms terms = TermsOf(*session_, problem, Placement{});
  OOC_ASSIGN(const PlanPointer plan, planner_.Lookup(problem, terms));
  OOC_TRY(session_->Settle());
  Result<Refinement> made =
      planner_.Machine().Refine(plan->request, plan->booking.candidate, busy_seconds);
  if (!made.ok()) return std::move(made).status().With(ToString(problem));
  planner_.Forget();
  return made;
}

// In the progress callback those of the call that is running, as far as it has come.
CallStats Context::stats() { return group_ != nullptr ? group_->stats() : OwnStats(); }

CallStats Context::OwnStats() {
  if (session_->IsCalledByThisThread()) return runner_.stats();
  const Session::Turn turn = session_->WaitForTurn();
  return runner_.stats();
}

Status Context::Release() {
  if (group_ != nullptr) OOC_TRY(group_->Release());
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_release"));
  return session_->Release();
}

Result<std::string> Context::Trace() {
  Device* const trace = session_->stack().trace;
  if (trace == nullptr) {
    return Error(Code::kUnsupported, "this context records no timeline; create it with trace on");
  }
  OOC_TRY(NeedOneDevice("oocdnn_take_trace"));
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_take_trace"));
  return TakeTrace(*trace);
}

std::string Context::CheckReport() {
  std::string text;
  if (session_->stack().check == nullptr) return text;
  for (const std::string& report : CheckReports(*session_->stack().check)) text += report + "\n";
  return group_ != nullptr ? text + group_->CheckReport() : text;
}

}  // namespace oocdnn
