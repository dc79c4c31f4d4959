// Calls on several devices: their shares, the threads that run them, and the sums of filter
// gradients.
#include "library/device_group.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/checked.hpp"
#include "base/guarded.hpp"
#include "exec/host_worker.hpp"
#include "store/plan_key.hpp"

namespace oocdnn {
namespace {

constexpr int kMostCuts = 5;          // of a problem; each has plans of its own
constexpr double kWorthwhile = 1.05;  // a call takes so many times as long as with other shares
constexpr int kCallsOfCut = 3;        // with the same shares: one plans, one warms up, one counts
constexpr double kClose = 1.5;        // of the time of the best shares
constexpr double kLeastSeconds = 1e-9, kMostSeconds = 1e9;
constexpr double kLeastRate = 1e-9;  // of a device without a share: it stays without one
// The time between two reports of progress on a thread that waits for the other devices.
constexpr std::chrono::milliseconds kReportEvery{20};

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

template <class T>
void AddTo(T* sum, const T* part, const Dims& dims, const Dims& stride, const Dims& dense,
           size_t d = 0) {
  for (int64_t i = 0; i < dims[d]; ++i) {
    if (d == 5) {
      sum[i * stride[d]] += part[i * dense[d]];
    } else {
      AddTo(sum + i * stride[d], part + i * dense[d], dims, stride, dense, d + 1);
    }
  }
}

// view += part, which lies densely.
void AddTo(const TensorView& view, const void* part, const Dims& dims) {
  const Dims dense = DenseStrides(dims);
  if (view.dtype == DType::kFloat64) {
    AddTo(static_cast<double*>(view.data), static_cast<const double*>(part), dims, view.stride,
          dense);
  } else {
    AddTo(static_cast<float*>(view.data), static_cast<const float*>(part), dims, view.stride,
          dense);
  }
}

Status CheckDivisible(const Problem& problem) {
  if (!problem.also.any()) return {};
  return Error(Code::kUnsupported,
               "joint gradients on several devices: compute each gradient by a call of its own");
}

// "cuda:1 (device 2 of 2)"
std::string NameOf(const std::vector<DeviceContext*>& devices, size_t device) {
  return Format("%s (device %zu of %zu)",
                devices[device]->session().device().capabilities().name.c_str(), device + 1,
                devices.size());
}

double LongestOf(const std::vector<Share>& shares, const std::vector<double>& rates) {
  double longest = 0.0;
  for (size_t device = 0; device < shares.size(); ++device) {
    longest = std::max(longest, static_cast<double>(shares[device].length()) / rates[device]);
  }
  return longest;
}

bool HasShare(const std::vector<Share>& shares, size_t device) {
  return shares[device].length() > 0;
}

// The first device that has a share, whose sums are the caller's.
size_t FirstOf(const std::vector<Share>& shares) {
  size_t device = 0;
  while (device + 1 < shares.size() && !HasShare(shares, device)) ++device;
  return device;
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

// The shares of a call while they run. Progress of all of them is reported on the calling thread.
// The destructor stops those that still run and waits for them, as where a callback ends the
// calling thread.
class DeviceGroup::RunningShares {
 public:
  RunningShares(const std::vector<DeviceContext*>& devices, const RunShare& run,
                const Progress& progress)
      : contexts_(devices), run_(run), progress_(progress), devices_(devices.size()) {}
  ~RunningShares() {
    stopped_ = true;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ == begun_; });
  }
  RunningShares(const RunningShares&) = delete;
  RunningShares& operator=(const RunningShares&) = delete;

  void Begin(size_t device, HostWorker& worker) {
    const auto begun = worker.Submit([this, device]() -> Status {
      End(RunOne(device));
      return {};
    });
    if (begun.ok()) {
      const std::lock_guard lock(mutex_);
      ++begun_;
      devices_[device].runs = true;
    } else {
      Note(begun.status());
    }
  }
  void RunHere(size_t device) {
    devices_[device].runs = true;
    Note(RunOne(device));
  }
  // Waits for all, and returns the first failure.
  Status Wait() {
    std::unique_lock lock(mutex_);
    while (ended_ < begun_) {
      changed_.wait_for(lock, kReportEvery);
      lock.unlock();
      Report();
      lock.lock();
    }
    lock.unlock();
    if (Sum().done > reported_) Report();  // the last tiles, of devices on other threads
    return first_;
  }

 private:
  struct Tiles {
    bool runs = false;
    int64_t done = 0, total = 0;
  };

  Status RunOne(size_t device) {
    return Guarded([&]() -> Status {
      Status status = run_(device, ProgressOf(device));
      if (status.ok()) return status;
      return std::move(status).With(NameOf(contexts_, device));
    });
  }
  // The progress of one device; false ends its share.
  Progress ProgressOf(size_t device) {
    return [this, device](int64_t done, int64_t total) {
      {
        const std::lock_guard lock(mutex_);
        devices_[device].done = done;
        devices_[device].total = total;
      }
      return device == 0 ? Report() : !stopped_;
    };
  }
  // A share that fails stops the others.
  void Note(Status status) {
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    const bool interrupted = status.code() == Code::kInterrupted;
    if (first_.ok() || (first_.code() == Code::kInterrupted && !interrupted)) {
      first_ = std::move(status);
    }
  }
  void End(Status status) {
    Note(std::move(status));
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }
  // All tiles of all devices that run; no total while one of them has none.
  Tiles Sum() {
    const std::lock_guard lock(mutex_);
    Tiles sum;
    for (const Tiles& device : devices_) {
      if (!device.runs) continue;
      if (device.total == 0) return {};
      sum.done += device.done;
      sum.total += device.total;
    }
    return sum;
  }
  // False if the caller or a failure ends the call.
  bool Report() {
    const Tiles sum = Sum();
    const bool reports = progress_ && sum.total > 0 && !stopped_;
    if (reports) reported_ = sum.done;
    if (reports && !progress_(sum.done, sum.total)) {
      Note(Error(Code::kInterrupted, "the progress callback ended the call"));
    }
    return !stopped_;
  }

  const std::vector<DeviceContext*>& contexts_;
  const RunShare& run_;
  const Progress& progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Tiles> devices_;
  int begun_ = 0, ended_ = 0;  // shares of workers
  int64_t reported_ = 0;       // tiles that the caller was told of last
  std::atomic<bool> stopped_ = false;
  Status first_;
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

std::vector<Share> DeviceGroup::Whole(const Problem& problem) const {
  const int64_t all = problem.shape.n;
  std::vector<Share> shares(devices_.size(), Share{Axis::kN, all, all});
  shares.front().begin = 0;
  return shares;
}

Result<std::vector<double>> DeviceGroup::RatesOf(const Problem& problem,
                                                 const std::vector<Terms>& terms) {
  std::vector<double> rates;
  for (size_t device = 0; device < devices_.size(); ++device) {
    Result<double> floor = devices_[device]->FloorOf(problem, terms[device]);
    if (!floor.ok()) return std::move(floor).status().With(NameOf(devices_, device));
    rates.push_back(1.0 / std::clamp(floor.value(), kLeastSeconds, kMostSeconds));
  }
  return rates;
}

// Sums are added by the host, in memory.
Result<DeviceGroup::Division*> DeviceGroup::DivisionOf(const Problem& problem,
                                                       const std::vector<Terms>& terms,
                                                       bool output_in_file) {
  const Terms& first = terms.front();
  const std::string key = KeyOf(problem, first.tiers, first.in_place, first.workspace);
  if (Division* const known = divisions_.Find(key)) return known;
  OOC_ASSIGN(const std::vector<double> rates, RatesOf(problem, terms));
  const bool adds = !devices_.front()->session().options().reproducible && !output_in_file;
  Division division{CutInShares(problem, rates, adds)};
  if (division.shares.empty()) {
    division.shares = Whole(problem);
    division.settled = true;
  }
  return &divisions_.Put(key, std::move(division));
}

std::vector<double> DeviceGroup::MeasuredRates(const std::vector<Share>& shares) const {
  std::vector<double> rates;
  for (size_t device = 0; device < devices_.size(); ++device) {
    const auto length = static_cast<double>(shares[device].length());
    const double seconds = std::clamp(seconds_[device], kLeastSeconds, kMostSeconds);
    rates.push_back(length > 0 ? length / seconds : kLeastRate);
  }
  return rates;
}

void DeviceGroup::Balance(const Problem& problem, Division* division) const {
  if (division->settled || ++division->calls < kCallsOfCut) return;
  const double took = stats_.run.seconds;
  if (division->best.empty() || took < division->seconds) {
    division->best = division->shares;
    division->seconds = took;
  }
  division->calls = 0;
  const std::vector<double> rates = MeasuredRates(division->shares);
  std::vector<Share> shares = CutInShares(problem, division->shares.front().axis, rates);
  const bool better = !shares.empty() && took >= kWorthwhile * LongestOf(shares, rates);
  if (better && ++division->cuts <= kMostCuts) {
    division->shares = std::move(shares);
  } else {
    Settle(rates, division);
  }
}

// Devices get in each other's way in host memory, so that the fastest may take less time alone. It
// is tried where its rate beside the others comes close.
void DeviceGroup::Settle(const std::vector<double>& rates, Division* division) const {
  const auto fastest = std::max_element(rates.begin(), rates.end());
  const int64_t all = division->shares.back().end;
  const bool close = static_cast<double>(all) / *fastest < kClose * division->seconds;
  if (close && !division->tried_alone) {
    division->tried_alone = true;
    const auto alone = static_cast<size_t>(fastest - rates.begin());
    for (size_t device = 0; device < devices_.size(); ++device) {
      Share& share = division->shares[device];
      share.begin = device <= alone ? 0 : all;
      share.end = device < alone ? 0 : all;
    }
    return;
  }
  division->shares = division->best;
  division->settled = true;
}

Status DeviceGroup::ReserveSums(const std::vector<Share>& shares, int64_t bytes) {
  for (size_t device = FirstOf(shares) + 1; device < devices_.size(); ++device) {
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
  OOC_ASSIGN(Division* const division, DivisionOf(problem, terms, in_file));
  Status status = RunDivided(problem, operands, division->shares, progress, workspace);
  if (!status.ok()) return std::move(status).With(ToString(problem));
  Balance(problem, division);
  return {};
}

Status DeviceGroup::RunDivided(const Problem& problem, const OperandViews& operands,
                               const std::vector<Share>& shares, const Progress& progress,
                               int64_t workspace) {
  const auto output = static_cast<size_t>(Index(problem.output()));
  const Dims dims = problem.DimsOf(problem.output());
  const bool adds = AddsUp(problem, shares.front().axis);
  const size_t first = FirstOf(shares);
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
    if (HasShare(shares, device)) AddTo(operands[output], sums_[device].memory->data(), dims);
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
  std::vector<Share> shares = Whole(front);
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
  OOC_ASSIGN(const Division* const division, DivisionOf(problem, terms, output == Tier::kFile));
  Result<PlanSummary> longest = Error(Code::kInternal, "no device has a share");
  for (size_t device = 0; device < devices_.size(); ++device) {
    const Share& share = division->shares[device];
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
