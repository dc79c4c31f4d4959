// Calls on several devices: what each of them runs, and the sums of filter gradients.
#include "library/device_group.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "exec/host_worker.hpp"
#include "library/elements.hpp"
#include "store/plan_key.hpp"

namespace oocdnn {
namespace {

// The views of a share.
OperandViews ViewsOf(const OperandViews& operands, const SharedProblem& part) {
  OperandViews views = operands;
  for (size_t o = 0; o < kOperands; ++o) {
    TensorView& tensor = views[o];
    const int64_t bytes = Mul(part.offset[o], SizeOf(tensor.dtype));
    if (tensor.in_file()) {
      tensor.location.offset = Add(tensor.location.offset, bytes);
    } else if (tensor.data != nullptr) {
      tensor.data = static_cast<char*>(tensor.data) + bytes;
    }
  }
  return views;
}

// view += part, which lies densely.
template <class T>
void AddTo(const TensorView& view, const void* part, const Dims& dims) {
  const auto sums = static_cast<T*>(view.data);
  const auto values = static_cast<const T*>(part);
  ForEachElement(dims, view.stride, DenseStrides(dims),
                 [=](int64_t sum, int64_t value) { sums[sum] += values[value]; });
}

Status CheckDivisible(const Problem& problem) {
  if (!problem.also.any()) return {};
  return Error(Code::kUnsupported,
               "joint gradients on several devices: compute each gradient by a call of its own");
}

}  // namespace

// One thread for each device but the first. Threads do not survive a fork.
struct DeviceGroup::Workers {
  explicit Workers(size_t count) {
    for (size_t i = 0; i < count; ++i)
      threads.push_back(std::make_unique<HostWorker>("oocdnn-share"));
  }
  const pid_t process = getpid();
  std::vector<std::unique_ptr<HostWorker>> threads;
};

DeviceGroup::DeviceGroup(const std::vector<std::unique_ptr<DeviceContext>>& devices)
    : sums_(devices.size()), seconds_(devices.size()) {
  for (const auto& device : devices) {
    devices_.push_back(device.get());
    name_ += (name_.empty() ? "" : ",") + device->session().device().capabilities().name;
  }
  workers_ = std::make_unique<Workers>(devices_.size() - 1);
}

DeviceGroup::~DeviceGroup() {
  if (workers_->process != getpid()) static_cast<void>(workers_.release());
}

Result<std::unique_lock<ProcessLock>> DeviceGroup::Begin(const char* function) {
  if (IsCalledByThisThread()) return NestedCall(function);
  std::unique_lock<ProcessLock> turn(turn_);
  if (workers_->process != getpid()) {
    static_cast<void>(workers_.release());  // its threads ended with the fork
    workers_ = std::make_unique<Workers>(devices_.size() - 1);
  }
  return turn;
}

// A GPU's stream can be waited for on that GPU only, so the first device that reaches an operand
// waits.
Status DeviceGroup::LookAt(const Problem& problem, const OperandViews& operands, void* stream,
                           std::vector<Terms>* terms, const Inner& inner) {
  bool awaited = false;
  for (DeviceContext* const device : devices_) {
    OOC_ASSIGN(const OperandViews tensors, device->Locate(problem, operands, inner));
    bool reached = false;
    for (size_t o = 0; o < kOperands; ++o) {
      const auto operand = static_cast<Operand>(o);
      if (!problem.Has(operand) || inner[o]) continue;
      if (tensors[o].location.tier == Tier::kDevice) {
        return Error(Code::kUnsupported,
                     "%s lies on a device, and a context of several devices reads and writes host "
                     "memory and files: copy it there, or take a context of one device",
                     Name(operand, problem.direction));
      }
      reached = reached || IsReached(tensors[o].location.tier);
    }
    if (reached && !awaited) {
      OOC_TRY(device->Await(stream));
      awaited = true;
    }
    terms->push_back(TermsOf(device->session(), problem, tensors, kLimitOfContext));
  }
  return {};
}

Result<std::vector<double>> DeviceGroup::RatesOf(const Problem& problem,
                                                 const std::vector<Terms>& terms) {
  std::vector<double> rates;
  for (size_t device = 0; device < devices_.size(); ++device) {
    Result<double> floor = devices_[device]->FloorOf(problem, terms[device]);
    if (!floor.ok()) return std::move(floor).status().With(NameOf(devices_, device));
    rates.push_back(RateOf(1, floor.value()));
  }
  return rates;
}

// Sums are added by the host, in memory.
Result<BalancedShares*> DeviceGroup::SharesOf(const Problem& problem,
                                              const std::vector<Terms>& terms,
                                              bool output_in_file) {
  const Terms& first = terms.front();
  const std::string key = KeyOf(problem, first.tiers, first.in_place, first.workspace);
  if (BalancedShares* const known = known_.Find(key)) return known;
  OOC_ASSIGN(const std::vector<double> rates, RatesOf(problem, terms));
  const bool adds = !devices_.front()->session().options().reproducible && !output_in_file;
  return &known_.Put(key, BalancedShares(problem, rates, adds));
}

Status DeviceGroup::ReserveSums(const std::vector<Share>& shares, int64_t bytes) {
  for (size_t device = FirstWithShare(shares) + 1; device < devices_.size(); ++device) {
    Sums& sums = sums_[device];
    if (!HasShare(shares, device) || sums.bytes >= bytes) continue;
    sums = {};
    OOC_ASSIGN(sums.memory,
               HostMemory::Allocate(devices_[device]->session().stack().device, bytes));
    sums.bytes = bytes;
  }
  return {};
}

Status DeviceGroup::RunAll(const std::vector<Share>& shares, const Progress& progress,
                           const RunShare& run) {
  stats_ = CallStats{};
  Status status;
  {
    RunningShares running(devices_, run, progress);
    for (size_t device = 1; device < devices_.size(); ++device) {
      if (HasShare(shares, device)) running.Begin(device, *workers_->threads[device - 1]);
    }
    if (HasShare(shares, 0)) running.RunHere(0);
    status = running.Wait();
  }
  Collect(shares);
  return status;
}

void DeviceGroup::Collect(const std::vector<Share>& shares) {
  double longest = 0.0;
  for (size_t device = 0; device < devices_.size(); ++device) {
    seconds_[device] = 0.0;
    if (!HasShare(shares, device)) continue;
    const CallStats one = devices_[device]->stats();
    seconds_[device] = one.run.seconds;
    longest = std::max(longest, one.run.seconds);
    if (stats_.engine.empty()) {
      stats_.engine = one.engine;
      stats_.split = one.split;
    }
    stats_.run.Add(one.run);
    stats_.device_allocations += one.device_allocations;
    stats_.prepared += one.prepared;
    stats_.peak_device_bytes = std::max(stats_.peak_device_bytes, one.peak_device_bytes);
    stats_.budget_bytes = std::max(stats_.budget_bytes, one.budget_bytes);
    stats_.predicted_seconds = std::max(stats_.predicted_seconds, one.predicted_seconds);
    stats_.planning_seconds = std::max(stats_.planning_seconds, one.planning_seconds);
  }
  stats_.run.seconds = longest;
}

Status DeviceGroup::Run(const Problem& problem, const OperandViews& operands, void* stream,
                        const Progress& progress, int64_t workspace) {
  OOC_TRY(CheckDivisible(problem));
  OOC_ASSIGN(const auto turn, Begin("oocdnn_run"));
  std::vector<Terms> terms;
  OOC_TRY(LookAt(problem, operands, stream, &terms));
  if (problem.shape.n == 0) {
    stats_ = CallStats{};
    return devices_.front()->Run(problem, operands, nullptr, progress, {}, workspace);
  }
  const bool in_file = operands[static_cast<size_t>(Index(problem.output()))].in_file();
  OOC_ASSIGN(BalancedShares* const shared, SharesOf(problem, terms, in_file));
  Status status = RunDivided(problem, operands, shared->shares(), progress, workspace);
  if (!status.ok()) return std::move(status).With(ToString(problem));
  shared->Balance(problem, stats_.run.seconds, seconds_);
  return {};
}

Status DeviceGroup::RunDivided(const Problem& problem, const OperandViews& operands,
                               const std::vector<Share>& shares, const Progress& progress,
                               int64_t workspace) {
  const auto output = static_cast<size_t>(Index(problem.output()));
  const Dims dims = problem.DimsOf(problem.output());
  const bool adds = AddsUp(problem, shares.front().axis);
  const size_t first = FirstWithShare(shares);
  if (adds) OOC_TRY(ReserveSums(shares, problem.BytesOf(problem.output())));
  OOC_TRY(RunAll(shares, progress, [&](size_t device, const Progress& within) -> Status {
    SharedProblem part = ProblemOf(problem, shares[device]);
    OperandViews tensors = ViewsOf(operands, part);
    if (adds && device != first) {
      tensors[output].data = sums_[device].memory->data();
      tensors[output].stride = part.problem.stride[output] = DenseStrides(dims);
    }
    return devices_[device]->Run(part.problem, tensors, nullptr, within, {}, workspace);
  }));
  for (size_t device = first + 1; adds && device < devices_.size(); ++device) {
    if (!HasShare(shares, device)) continue;
    const TensorView& view = operands[output];
    const auto add = view.dtype == DType::kFloat64 ? AddTo<double> : AddTo<float>;
    add(view, sums_[device].memory->data(), dims);
  }
  return {};
}

Status DeviceGroup::Run(const Program& program, const std::vector<OperandViews>& operands,
                        void* stream, const Progress& progress, int64_t workspace) {
  const bool rows = program.traversal() == Traversal::kRows;
  OOC_ASSIGN(const auto turn, Begin(rows ? "oocdnn_run_chain" : "oocdnn_run_chain_backward"));
  std::vector<Terms> terms;  // of the first node, then of the others
  for (size_t i = 0; i < program.size(); ++i) {
    OOC_TRY(LookAt(program[i], operands[i], stream, &terms, program.PassedTo(i)));
  }
  const Problem& front = program.front();
  if (front.shape.n == 0) {
    stats_ = CallStats{};
    return devices_.front()->Run(program, operands, nullptr, progress, workspace);
  }
  std::vector<Share> shares = WholeOnFirst(front, devices_.size());
  if (rows && front.shape.n > 1) {
    OOC_ASSIGN(const std::vector<double> rates, RatesOf(front, terms));
    shares = CutInShares(front, Axis::kN, rates);
  }
  return RunAll(shares, progress, [&](size_t device, const Progress& within) -> Status {
    const Share& share = shares[device];
    std::vector<OperandViews> tensors;
    tensors.reserve(program.size());
    for (size_t i = 0; i < program.size(); ++i) {
      tensors.push_back(ViewsOf(operands[i], ProblemOf(program[i], share)));
    }
    const Program part = ProgramOf(program, share.begin, share.end);
    return devices_[device]->Run(part, tensors, nullptr, within, workspace);
  });
}

Result<PlanSummary> DeviceGroup::Plan(const Problem& problem, const Placement& placement) {
  OOC_TRY(CheckDivisible(problem));
  OOC_ASSIGN(const auto turn, Begin("oocdnn_plan"));
  std::vector<Terms> terms;
  terms.reserve(devices_.size());
  for (DeviceContext* const device : devices_) {
    terms.push_back(TermsOf(device->session(), problem, placement));
  }
  const Tier output = placement.tiers[static_cast<size_t>(Index(problem.output()))];
  OOC_ASSIGN(const BalancedShares* const shared, SharesOf(problem, terms, output == Tier::kFile));
  Result<PlanSummary> longest = Error(Code::kInternal, "no device has a share");
  for (size_t device = 0; device < devices_.size(); ++device) {
    const Share& share = shared->shares()[device];
    if (share.length() == 0) continue;
    const std::string name = NameOf(devices_, device);
    Result<PlanSummary> plan = devices_[device]->Plan(ProblemOf(problem, share).problem, placement);
    if (!plan.ok()) return std::move(plan).status().With(name);
    if (longest.ok() && plan->cost.seconds <= longest->cost.seconds) continue;
    plan->description =
        Format("%s computes %lld to %lld on axis %s\n%s", name.c_str(),
               static_cast<long long>(share.begin), static_cast<long long>(share.end),
               Name(share.axis), plan->description.c_str());
    longest = std::move(plan);
  }
  return longest;
}

CallStats DeviceGroup::stats() {
  if (IsCalledByThisThread()) {
    const bool runs_here = devices_.front()->session().IsCalledByThisThread();
    return runs_here ? devices_.front()->stats() : stats_;
  }
  const std::lock_guard turn(turn_);
  return stats_;
}

Status DeviceGroup::Release() {
  OOC_ASSIGN(const auto turn, Begin("oocdnn_release"));
  for (Sums& sums : sums_) sums = {};
  for (DeviceContext* const device : devices_) {
    OOC_ASSIGN(const Session::Turn own, device->session().TakeTurn("oocdnn_release"));
    OOC_TRY(device->session().Release());
  }
  return {};
}

}  // namespace oocdnn
