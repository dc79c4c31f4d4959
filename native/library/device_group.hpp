// DeviceGroup: the devices of a context that has several. A call is cut into shares, one for each
// device, which run at the same time on parts of the caller's tensors.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/process_lock.hpp"
#include "base/recent.hpp"
#include "geom/share.hpp"
#include "library/runner.hpp"
#include "memory/host_memory.hpp"

namespace oocdnn {

class Context;

class DeviceGroup {
 public:
  // `first`, which owns the group, must outlive it. `names` of all devices, as the caller wrote
  // them.
  DeviceGroup(Context& first, std::vector<std::unique_ptr<Context>> others,
              std::vector<std::string> names);
  ~DeviceGroup();

  // Runs a call to its end. Operands are in host memory or in files: kUnsupported for one on a
  // device. What cannot be cut runs on the first device. If a device fails, the error names it, and
  // the others stop at their next tile.
  Status Run(const Problem& problem, const OperandViews& operands, void* stream,
             const Progress& progress, int64_t workspace);
  // A program of rows is cut along its samples; others run on the first device.
  Status Run(const Program& program, const std::vector<OperandViews>& operands, void* stream,
             const Progress& progress, int64_t workspace);
  // Of the last call: sums over the devices, and the longest of their times.
  [[nodiscard]] CallStats stats();
  // The plan of the share that takes longest, for operands at this placement.
  Result<PlanSummary> Plan(const Problem& problem, const Placement& placement);
  // Of all devices but the first, see Context.
  Status Release();
  std::string CheckReport();
  // True if the calling thread is inside a call, as in a callback.
  [[nodiscard]] bool IsCalledByThisThread() const { return turn_.HeldByThisThread(); }
  // The names, separated by commas.
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  class Shares;  // of a call, while they run
  struct Workers;
  using RunShare = std::function<Status(size_t device, const Progress& progress)>;
  // How a problem is cut, how often it was, and how the shares did.
  struct Known {
    std::vector<Share> shares;
    int cuts = 1, calls = 0;    // `calls`: with these shares
    std::vector<Share> best{};  // the shares with the shortest call
    double seconds = 0.0;       // of that call
  };

  // The turn of the group.
  Result<std::unique_lock<ProcessLock>> Begin();
  // Operands or a placement.
  template <class Where>
  Result<Known*> KnownOf(const Problem& problem, const Where& where, bool in_file);
  template <class Where>
  Result<std::vector<double>> RatesOf(const Problem& problem, const Where& where);
  // Cuts a problem anew if the seconds of its shares say that this is worth it. The first call with
  // new shares plans them and takes memory, so the second one counts.
  void Balance(const Problem& problem, Known* known) const;
  // Runs the shares of the devices that have one, the first device's on this thread.
  Status RunAll(const std::vector<Share>& shares, const Progress& progress, const RunShare& run);
  // For the sums of a device but the first.
  Result<void*> ReserveSums(size_t device, int64_t bytes);
  // The whole problem on the first device.
  [[nodiscard]] std::vector<Share> Whole(const Problem& problem) const;
  // The statistics of the devices that ran a share.
  void Collect(const std::vector<Share>& shares);

  std::vector<std::unique_ptr<Context>> others_;
  std::vector<Context*> devices_;
  std::vector<std::string> names_;
  std::string name_;
  ProcessLock turn_;
  std::unique_ptr<Workers> workers_;
  struct Sums {
    std::unique_ptr<HostMemory> memory;
    int64_t bytes = 0;
  };
  std::vector<Sums> sums_;
  static constexpr size_t kProblemsKept = 512;
  Recent<std::string, Known, std::hash<std::string>> known_{kProblemsKept};
  std::vector<double> seconds_;  // of each device's share
  CallStats stats_;
};

}  // namespace oocdnn
