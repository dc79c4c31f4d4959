// Context: a device with a budget, the plans made for it, and the tile loop that runs them; or
// several devices, among which each call is shared (library/device_group.hpp).
//
// A context runs one call at a time; calls from several threads are serialized. In a forked child
// it creates new threads and streams.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "library/device_group.hpp"
#include "memory/host_memory.hpp"
#include "model/search/micro_batch.hpp"

namespace oocdnn {

class Context {
 public:
  // The options' device may be several, separated by commas; the budget is of each. kUnsupported
  // from functions that concern one device, where there are several.
  static Result<std::unique_ptr<Context>> Create(const ContextOptions& options);
  ~Context();

  // Runs one call to its end. The tensors are views in the six dimensions of their operands.
  // `stream` is the caller's stream, as a handle of the device: operands on a GPU or in pinned
  // memory are read and written in stream order. Scratch memory is used only if all operands are on
  // the device; if it suffices, the call books no other memory. `workspace`: the most bytes of an
  // engine's workspace.
  Status Run(const Problem& problem, const OperandViews& operands, void* stream,
             const Progress& progress, const Scratch& scratch = {},
             int64_t workspace = kLimitOfContext);
  // Runs a program, with the tensors of each node. Of a tensor that nodes pass to each other only
  // the strides are used. Results that sections of it pass to each other are in memory that stays
  // allocated until Release.
  Status Run(const Program& program, const std::vector<OperandViews>& operands, void* stream,
             const Progress& progress, int64_t workspace = kLimitOfContext);
  // Predicted seconds of such a run, by estimate: no engine is prepared, and no data is read.
  // Tensors without data count as pinned.
  Result<double> Price(const Program& program, const std::vector<OperandViews>& operands,
                       int64_t workspace = kLimitOfContext);
  // Plans a problem without running it. Operands are in pageable memory, or on the device and
  // aligned where the placement says so.
  Result<PlanSummary> Plan(const Problem& problem, const Placement& placement = {});
  // Predicts a plan that the caller gives as text (model/text/plan_text.hpp); no engine is
  // prepared.
  Result<PlanSummary> Price(const Problem& problem, const Placement& placement,
                            const std::string& plan);
  // Prepares such a plan, and uses it in calls whose operands have this placement.
  Status UsePlan(const Problem& problem, const Placement& placement, const std::string& plan);
  // The `best` candidates of the search and `random` other ones that fit by estimate, for this
  // placement.
  Result<std::vector<RunnerUp>> Candidates(const Problem& problem, const Placement& placement,
                                           int best, int random, uint64_t seed);
  // Plans for aligned operands on the device; budget 0: the context's. Returns the bytes of scratch
  // memory with which Run uses this plan, given the same limit of workspace.
  Result<int64_t> PlanInCore(const Problem& problem, int64_t budget,
                             int64_t workspace = kLimitOfContext);

  // See MeasureParts; all operands are on the device and aligned.
  Result<std::vector<MicroBatch>> MeasureParts(const Problem& problem, BatchPolicy policy);

  // See HostMemory. From any thread.
  Result<std::unique_ptr<HostMemory>> AllocateHost(int64_t bytes) {
    return HostMemory::Allocate(session().stack().device, bytes);
  }
  Result<std::unique_ptr<HostMemory>> PinHost(void* data, int64_t bytes) {
    return HostMemory::Pin(session().stack().device, data, bytes);
  }

  // See Session::AutoPinBytes.
  [[nodiscard]] int64_t AutoPinBytes() const { return session().AutoPinBytes(); }

  CallStats stats();
  // True if the calling thread is inside a call on this context, as in a callback.
  [[nodiscard]] bool IsCalledByThisThread() const {
    const bool in_group = group_ != nullptr && group_->IsCalledByThisThread();
    return in_group || session().IsCalledByThisThread();
  }
  Status Release();
  // Completes the machine's profile (MachineProfile::Complete), which later plans use; returns its
  // path.
  Result<std::string> Calibrate(const Progress& progress);
  // Adjusts the machine's profile to calls of the problem with all operands in host memory
  // (MachineProfile::Refine). `busy_seconds`: of the compute stage, for each call.
  Result<Refinement> Refine(const Problem& problem, const std::vector<double>& busy_seconds);
  // The timeline so far as Chrome trace JSON; kUnsupported without a trace device.
  Result<std::string> Trace();
  // See PlanMemory::Report.
  [[nodiscard]] Component ReportPlans() { return planner().memory().Report(); }
  // The violations that the check device found, one a line; "" if there are none.
  std::string CheckReport();
  // The first one.
  [[nodiscard]] const Device& device() const { return session().device(); }
  // "cuda:0", or of several devices "cuda:0,cuda:1".
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] int64_t budget() const { return session().budget(); }
  [[nodiscard]] const ContextOptions& options() const { return session().options(); }

 private:
  explicit Context(std::vector<std::unique_ptr<DeviceContext>> devices);
  [[nodiscard]] DeviceContext& first() { return *devices_.front(); }
  [[nodiscard]] Session& session() { return first().session(); }
  [[nodiscard]] const Session& session() const { return devices_.front()->session(); }
  [[nodiscard]] Planner& planner() { return first().planner(); }
  // The turn of the only device; kUnsupported if there are several.
  Result<Session::Turn> TakeOnlyTurn(const char* function);

  std::vector<std::unique_ptr<DeviceContext>> devices_;
  std::unique_ptr<DeviceGroup> group_;  // null for one device
};

}  // namespace oocdnn
