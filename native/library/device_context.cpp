// Calls and plans on one device.
#include "library/device_context.hpp"

#include <utility>

#include "library/file_mappings.hpp"
#include "library/locate.hpp"
#include "model/price/cost.hpp"
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

DeviceContext::DeviceContext(std::unique_ptr<Session> session)
    : session_(std::move(session)), planner_(*session_), runner_(*session_, planner_) {}

DeviceContext::~DeviceContext() { session_->End(); }

Status DeviceContext::Run(const Problem& problem, const OperandViews& operands, void* stream,
                          const Progress& progress, const Scratch& scratch, int64_t workspace) {
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_run"));
  return runner_.Run(problem, operands, stream, progress, scratch, workspace);
}

Status DeviceContext::Run(const Program& program, const std::vector<OperandViews>& operands,
                          void* stream, const Progress& progress, int64_t workspace) {
  const bool rows = program.traversal() == Traversal::kRows;
  OOC_ASSIGN(const Session::Turn turn,
             session_->TakeTurn(rows ? "oocdnn_run_chain" : "oocdnn_run_chain_backward"));
  return runner_.Run(program, operands, stream, progress, workspace);
}

Result<PlanSummary> DeviceContext::Plan(const Problem& problem, const Placement& placement) {
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

CallStats DeviceContext::stats() {
  if (session_->IsCalledByThisThread()) return runner_.stats();
  const Session::Turn turn = session_->WaitForTurn();
  return runner_.stats();
}

Result<OperandViews> DeviceContext::Locate(const Problem& problem, const OperandViews& operands,
                                           const Inner& inner) {
  OperandViews tensors = operands;
  OOC_TRY(LocateOperands(session_->device(), problem, &tensors, inner));
  return tensors;
}

Status DeviceContext::Await(void* stream) {
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_run"));
  OOC_TRY(session_->Follow(stream).status());
  return session_->Settle();
}

Result<double> DeviceContext::FloorOf(const Problem& problem, const Terms& terms) {
  OOC_ASSIGN(const Session::Turn turn, session_->TakeTurn("oocdnn_run"));
  return oocdnn::FloorOf(planner_.CallRequestFor(problem, terms), planner_.ProfileFor(problem));
}

}  // namespace oocdnn
