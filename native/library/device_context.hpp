// DeviceContext: one device of a context, with the plans made for it.
#pragma once

#include <memory>
#include <vector>

#include "library/runner.hpp"
#include "model/text/summary.hpp"

namespace oocdnn {

class DeviceContext {
 public:
  explicit DeviceContext(std::unique_ptr<Session> session);
  ~DeviceContext();

  // See Context. The operands were checked.
  Status Run(const Problem& problem, const OperandViews& operands, void* stream,
             const Progress& progress, const Scratch& scratch, int64_t workspace);
  Status Run(const Program& program, const std::vector<OperandViews>& operands, void* stream,
             const Progress& progress, int64_t workspace);
  Result<PlanSummary> Plan(const Problem& problem, const Placement& placement);
  CallStats stats();

  // The operands with their tiers on this device. kUnsupported if one of them is on a GPU that this
  // device is not.
  Result<OperandViews> Locate(const Problem& problem, const OperandViews& operands,
                              const Inner& inner = {});
  // Waits for the work in a stream of the caller's, which belongs to this device.
  Status Await(void* stream);
  // The least time of a call by the machine's profile, in seconds; no plan takes less.
  Result<double> FloorOf(const Problem& problem, const Terms& terms);

  [[nodiscard]] Session& session() { return *session_; }
  [[nodiscard]] const Session& session() const { return *session_; }
  [[nodiscard]] Planner& planner() { return planner_; }

 private:
  std::unique_ptr<Session> session_;
  Planner planner_;
  Runner runner_;
};

}  // namespace oocdnn
