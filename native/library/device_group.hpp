// DeviceGroup: the devices of a context that has several. A call is cut into shares, one for each
// device, which run at the same time on parts of the caller's tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/process_lock.hpp"
#include "base/recent.hpp"
#include "library/balanced_shares.hpp"
#include "library/device_context.hpp"
#include "library/running_shares.hpp"
#include "memory/host_memory.hpp"

namespace oocdnn {

class DeviceGroup {
 public:
  // The devices must outlive the group.
  explicit DeviceGroup(const std::vector<std::unique_ptr<DeviceContext>>& devices);
  ~DeviceGroup();

  // Runs a call to its end. kUnsupported for operands on a device, and for joint gradients. What
  // cannot be cut otherwise runs on the first device. If a device fails, the error names it, and
  // the others stop at their next tile. Progress is reported as soon as all devices have a plan,
  // and every few milliseconds at the end while one of them still computes.
  Status Run(const Problem& problem, const OperandViews& operands, void* stream,
             const Progress& progress, int64_t workspace);
  // A program of rows is cut along its samples; another one runs on the first device.
  Status Run(const Program& program, const std::vector<OperandViews>& operands, void* stream,
             const Progress& progress, int64_t workspace);
  // The plan of the share that takes longest, for operands at this placement.
  Result<PlanSummary> Plan(const Problem& problem, const Placement& placement);
  // The last call: tiles, bytes, allocations and the seconds of stages are sums over the devices;
  // the call's seconds, peak, budget and planning are the largest of any device; engine and split
  // are the first device's. Within a callback, the first device's numbers so far.
  [[nodiscard]] CallStats stats();
  // Frees all memory of all devices.
  Status Release();
  // True if the calling thread is inside a call, as in a callback.
  [[nodiscard]] bool IsCalledByThisThread() const { return turn_.HeldByThisThread(); }
  // The names of the devices, separated by commas.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  struct Workers;

  // The turn of the group. `function` is named in the error of a nested call.
  Result<std::unique_lock<ProcessLock>> Begin(const char* function);
  // Waits for the caller's stream if an operand is read or written in its order; kUnsupported if
  // one lies on a device. `terms` become those of the devices.
  Status LookAt(const Problem& problem, const OperandViews& operands, void* stream,
                std::vector<Terms>* terms, const Inner& inner = {});
  // The remembered shares, or those by the floors of the devices; valid until others are asked for.
  Result<BalancedShares*> SharesOf(const Problem& problem, const std::vector<Terms>& terms,
                                   bool output_in_file);
  Result<std::vector<double>> RatesOf(const Problem& problem, const std::vector<Terms>& terms);
  Status RunDivided(const Problem& problem, const OperandViews& operands,
                    const std::vector<Share>& shares, const Progress& progress, int64_t workspace);
  // Runs the shares of the devices that have one, the first device's on this thread.
  Status RunAll(const std::vector<Share>& shares, const Progress& progress, const RunShare& run);
  // Memory for the sums of each device but the first that has a share.
  Status ReserveSums(const std::vector<Share>& shares, int64_t bytes);
  // Takes over the statistics of the devices that have a share.
  void Collect(const std::vector<Share>& shares);

  std::vector<DeviceContext*> devices_;
  std::string name_;
  ProcessLock turn_;
  std::unique_ptr<Workers> workers_;
  struct Sums {
    std::unique_ptr<HostMemory> memory;
    int64_t bytes = 0;
  };
  std::vector<Sums> sums_;
  static constexpr size_t kProblemsKept = 512;
  Recent<std::string, BalancedShares, std::hash<std::string>> known_{kProblemsKept};
  std::vector<double> seconds_;  // of each device's share in the last call
  CallStats stats_;
};

}  // namespace oocdnn
