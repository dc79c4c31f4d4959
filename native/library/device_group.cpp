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
#include "library/context.hpp"
#include "library/locate.hpp"

namespace oocdnn {
namespace {

constexpr int kMostCuts = 6;     // of a problem; each has plans of its own
constexpr double kWorth = 1.05;  // a call takes so many times as long as with other shares
constexpr double kLeastSeconds = 1e-9, kMostSeconds = 1e9;
constexpr std::chrono::milliseconds kLook{20};  // between looks at a caller who may interrupt

// The views of a share, which begin elsewhere.
OperandViews Moved(const OperandViews& operands, const SharedProblem& part) {
  OperandViews moved = operands;
  for (size_t o = 0; o < kOperands; ++o) {
    TensorView& tensor = moved[o];
    const int64_t bytes = Mul(part.offset[o], SizeOf(tensor.dtype));
    if (tensor.in_file()) {
      tensor.location.offset = Add(tensor.location.offset, bytes);
    } else if (tensor.data != nullptr) {
      tensor.data = static_cast<char*>(tensor.data) + bytes;
    }
  }
  return moved;
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

// Whether the operands are read and written in the order of the caller's stream. None of them may
// be on a device, from where shares would cross to all others.
Result<bool> IsOrdered(Device& device, const Problem& problem, OperandViews tensors,
                       const Inner& inner = {}) {
  OOC_TRY(LocateOperands(device, problem, &tensors, inner));
  bool ordered = false;
  for (int o = 0; o < kOperands; ++o) {
    const auto operand = static_cast<Operand>(o);
    if (!problem.Has(operand) || inner[static_cast<size_t>(o)]) continue;
    const Tier tier = tensors[static_cast<size_t>(o)].location.tier;
    ordered = ordered || IsReached(tier);
    if (tier == Tier::kDevice) {
      return Error(Code::kUnsupported,
                   "%s lies on a device, and a context of several devices reads and writes host "
                   "memory and files: copy it there, or take a context of one device",
                   Name(operand, problem.direction));
    }
  }
  return ordered;
}

bool Takes(const std::vector<Share>& shares, size_t device) { return shares[device].length() > 0; }

}  // namespace

// One thread for each device but the first. Threads do not survive a fork.
struct DeviceGroup::Workers {
  explicit Workers(size_t count) : threads(count) {}
  const pid_t process = getpid();
  std::vector<HostWorker> threads;
};

// The shares of a call. Progress of all of them is reported on the calling thread.
class DeviceGroup::Shares {
 public:
  Shares(size_t count, const Progress& progress) : progress_(progress), devices_(count) {}

  // Of the share of a device; false ends it.
  [[nodiscard]] Progress ProgressOf(size_t device) {
    return [this, device](int64_t done, int64_t total) {
      devices_[device].done = done;
      devices_[device].total = total;
      return device == 0 ? Report() : !stopped_;
    };
  }
  void Begin() { ++running_; }
  // A share that fails stops the others.
  void End(Status status) {
    const std::lock_guard lock(mutex_);
    --running_;
    if (!status.ok()) {
      stopped_ = true;
      const bool stops = status.code() == Code::kInterrupted;
      if (first_.ok() || (first_.code() == Code::kInterrupted && !stops)) {
        first_ = std::move(status);
      }
    }
    ended_.notify_all();
  }
  // Waits for all, and returns the first failure.
  Status Wait() {
    std::unique_lock lock(mutex_);
    while (running_ > 0) {
      ended_.wait_for(lock, kLook);
      lock.unlock();
      Report();
      lock.lock();
    }
    return first_;
  }

 private:
  struct Tiles {
    std::atomic<int64_t> done = 0, total = 0;
  };

  // False if the caller or a failure ends the call.
  bool Report() {
    if (stopped_ || !progress_) return !stopped_;
    int64_t done = 0, total = 0;
    for (const Tiles& device : devices_) {
      done += device.done;
      total += device.total;
    }
    if (!progress_(done, total)) stopped_ = true;
    return !stopped_;
  }

  const Progress& progress_;
  std::vector<Tiles> devices_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;
  std::atomic<bool> stopped_ = false;
  Status first_;
};

DeviceGroup::DeviceGroup(Context& first, std::vector<std::unique_ptr<Context>> others,
                         std::vector<std::string> names)
    : others_(std::move(others)), devices_{&first}, names_(std::move(names)) {
  for (const auto& other : others_) devices_.push_back(other.get());
  for (const std::string& name : names_) name_ += (name_.empty() ? "" : ",") + name;
  workers_ = std::make_unique<Workers>(others_.size());
  sums_.resize(devices_.size());
  seconds_.resize(devices_.size());
}

DeviceGroup::~DeviceGroup() {
  if (workers_->process != getpid()) static_cast<void>(workers_.release());
}

Result<std::unique_lock<ProcessLock>> DeviceGroup::Begin() {
  if (IsCalledByThisThread()) return NestedCall("oocdnn_run");
  std::unique_lock<ProcessLock> turn(turn_);
  if (workers_->process != getpid()) {
    static_cast<void>(workers_.release());  // its threads ended with the fork
    workers_ = std::make_unique<Workers>(others_.size());
  }
  stats_ = CallStats{};
  return turn;
}

Status DeviceGroup::RunAll(const std::vector<Share>& shares, const Progress& progress,
                           const RunShare& run) {
  Shares running(devices_.size(), progress);
  const auto run_one = [&](size_t device) {
    Status status = Guarded([&] { return run(device, running.ProgressOf(device)); });
    running.End(status.ok() ? std::move(status) : std::move(status).With(names_[device]));
    return Status();
  };
  for (size_t device = 0; device < devices_.size(); ++device) {
    if (Takes(shares, device)) running.Begin();
  }
  for (size_t device = 1; device < devices_.size(); ++device) {
    if (!Takes(shares, device)) continue;
    const auto begun =
        workers_->threads[device - 1].Submit([&run_one, device] { return run_one(device); });
    if (!begun.ok()) running.End(begun.status());
  }
  if (Takes(shares, 0)) static_cast<void>(run_one(0));
  Status status = running.Wait();
  for (HostWorker& worker : workers_->threads) static_cast<void>(worker.Finish());
  return status;
}

std::vector<Share> DeviceGroup::Whole(const Problem& problem) const {
  const int64_t all = problem.shape.n;
  std::vector<Share> shares(devices_.size(), Share{Axis::kN, all, all});
  shares.front().begin = 0;
  return shares;
}

template <class Where>
Result<std::vector<double>> DeviceGroup::RatesOf(const Problem& problem, const Where& where) {
  std::vector<double> rates;
  for (size_t device = 0; device < devices_.size(); ++device) {
    Result<double> floor = devices_[device]->FloorOf(problem, where);
    if (!floor.ok()) return std::move(floor).status().With(names_[device]);
    rates.push_back(1.0 / std::clamp(floor.value(), kLeastSeconds, kMostSeconds));
  }
  return rates;
}

// Sums are added in memory that the host reaches.
template <class Where>
Result<DeviceGroup::Known*> DeviceGroup::KnownOf(const Problem& problem, const Where& where,
                                                 bool in_file) {
  const std::string key = ToString(problem) + (in_file ? " file" : "");
  if (Known* const known = known_.Find(key)) return known;
  OOC_ASSIGN(const std::vector<double> rates, RatesOf(problem, where));
  const bool adds = !devices_.front()->options().reproducible && !in_file;
  Known known{CutInShares(problem, rates, adds)};
  if (known.shares.empty()) known = {Whole(problem), kMostCuts};
  return &known_.Put(key, std::move(known));
}

// The rate of a device without a share is not known again: it stays without one.
void DeviceGroup::Balance(const Problem& problem, Known* known) const {
  if (known->cuts >= kMostCuts || ++known->calls < 2) return;
  const double now = stats_.run.seconds;
  if (known->best.empty() || now < known->seconds) {
    known->best = known->shares;
    known->seconds = now;
  }
  std::vector<double> rates;
  for (size_t device = 0; device < devices_.size(); ++device) {
    const double length = static_cast<double>(known->shares[device].length());
    const double seconds = std::clamp(seconds_[device], kLeastSeconds, kMostSeconds);
    rates.push_back(length > 0 ? length / seconds : kLeastSeconds);
  }
  std::vector<Share> shares = CutInShares(problem, known->shares.front().axis, rates);
  double then = 0.0;
  for (size_t device = 0; device < devices_.size(); ++device) {
    then = std::max(then, static_cast<double>(shares[device].length()) / rates[device]);
  }
  if (now < kWorth * then) return;
  known->calls = 0;
  ++known->cuts;
  known->shares = known->cuts < kMostCuts ? std::move(shares) : known->best;
}

Result<void*> DeviceGroup::ReserveSums(size_t device, int64_t bytes) {
  Sums& sums = sums_[device];
  if (sums.bytes < bytes) {
    sums = {};
    OOC_ASSIGN(sums.memory, devices_[device]->AllocateHost(bytes));
    sums.bytes = bytes;
  }
  return sums.memory->data();
}

void DeviceGroup::Collect(const std::vector<Share>& shares) {
  double longest = 0.0;
  for (size_t device = 0; device < devices_.size(); ++device) {
    seconds_[device] = 0.0;
    if (!Takes(shares, device)) continue;
    const CallStats one = devices_[device]->OwnStats();
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
  OOC_ASSIGN(const auto turn, Begin());
  Context& first_device = *devices_.front();
  OOC_ASSIGN(const bool ordered, IsOrdered(first_device.session_->device(), problem, operands));
  if (ordered) OOC_TRY(first_device.Await(stream));
  if (problem.also.any()) {
    return Error(Code::kUnsupported,
                 "joint gradients on several devices: compute each gradient by a call of its own");
  }
  if (problem.shape.n == 0) {
    return first_device.RunHere(problem, operands, nullptr, progress, {}, workspace);
  }
  const auto output = static_cast<size_t>(Index(problem.output()));
  OOC_ASSIGN(Known* const known, KnownOf(problem, operands, operands[output].in_file()));
  const std::vector<Share>& shares = known->shares;
  const bool adds = AddsUp(problem, shares.front().axis);
  const auto first = std::find_if(shares.begin(), shares.end(),
                                  [](const Share& share) { return share.length() > 0; });
  const auto summing = static_cast<size_t>(first - shares.begin());
  if (adds) {  // before anything runs
    for (size_t device = summing + 1; device < devices_.size(); ++device) {
      if (!Takes(shares, device)) continue;
      OOC_TRY(ReserveSums(device, problem.BytesOf(problem.output())).status());
    }
  }
  OOC_TRY(RunAll(shares, progress, [&](size_t device, const Progress& within) -> Status {
    SharedProblem part = ProblemOf(problem, shares[device]);
    OperandViews tensors = Moved(operands, part);
    if (adds && device != summing) {
      tensors[output].data = sums_[device].memory->data();
      tensors[output].stride = DenseStrides(problem.DimsOf(problem.output()));
      part.problem.stride[output] = tensors[output].stride;
    }
    return devices_[device]->RunHere(part.problem, tensors, nullptr, within, {}, workspace);
  }));
  Collect(shares);
  for (size_t device = summing + 1; adds && device < devices_.size(); ++device) {
    if (!Takes(shares, device)) continue;
    AddTo(operands[output], sums_[device].memory->data(), problem.DimsOf(problem.output()));
  }
  Balance(problem, known);
  return {};
}

Status DeviceGroup::Run(const Program& program, const std::vector<OperandViews>& operands,
                        void* stream, const Progress& progress, int64_t workspace) {
  OOC_ASSIGN(const auto turn, Begin());
  Context& first = *devices_.front();
  for (size_t i = 0; i < program.size(); ++i) {
    OOC_ASSIGN(const bool ordered,
               IsOrdered(first.session_->device(), program[i], operands[i], program.PassedTo(i)));
    if (ordered) OOC_TRY(first.Await(stream));
  }
  const Problem& front = program.front();
  if (program.traversal() != Traversal::kRows || front.shape.n == 0) {
    Status status = first.RunHere(program, operands, nullptr, progress, workspace);
    Collect(Whole(front));
    return status;
  }
  OOC_ASSIGN(const std::vector<double> rates, RatesOf(front, operands.front()));
  const std::vector<Share> shares = CutInShares(front, Axis::kN, rates);
  OOC_TRY(RunAll(shares, progress, [&](size_t device, const Progress& within) -> Status {
    const Share& share = shares[device];
    std::vector<OperandViews> tensors;
    tensors.reserve(program.size());
    for (size_t i = 0; i < program.size(); ++i) {
      tensors.push_back(Moved(operands[i], ProblemOf(program[i], share)));
    }
    const Program part = ProgramOf(program, share.begin, share.end);
    return devices_[device]->RunHere(part, tensors, nullptr, within, workspace);
  }));
  Collect(shares);
  return {};
}

Result<PlanSummary> DeviceGroup::Plan(const Problem& problem, const Placement& placement) {
  if (IsCalledByThisThread()) return NestedCall("oocdnn_plan");
  const std::lock_guard turn(turn_);
  const Tier output = placement.tiers[static_cast<size_t>(Index(problem.output()))];
  OOC_ASSIGN(const Known* const known, KnownOf(problem, placement, output == Tier::kFile));
  Result<PlanSummary> longest = Error(Code::kInternal, "no device has a share");
  for (size_t device = 0; device < devices_.size(); ++device) {
    const Share& share = known->shares[device];
    if (share.length() == 0) continue;
    Result<PlanSummary> plan =
        devices_[device]->PlanHere(ProblemOf(problem, share).problem, placement);
    if (!plan.ok()) return std::move(plan).status().With(names_[device]);
    if (longest.ok() && plan->cost.seconds <= longest->cost.seconds) continue;
    plan->description =
        Format("%s computes %lld to %lld on axis %s\n%s", names_[device].c_str(),
               static_cast<long long>(share.begin), static_cast<long long>(share.end),
               Name(share.axis), plan->description.c_str());
    longest = std::move(plan);
  }
  return longest;
}

CallStats DeviceGroup::stats() {
  if (IsCalledByThisThread()) return stats_;
  const std::lock_guard turn(turn_);
  return stats_;
}

std::string DeviceGroup::CheckReport() {
  std::string text;
  for (const auto& other : others_) text += other->CheckReport();
  return text;
}

Status DeviceGroup::Release() {
  if (IsCalledByThisThread()) return NestedCall("oocdnn_release");
  const std::lock_guard turn(turn_);
  for (Sums& sums : sums_) sums = {};
  for (const auto& other : others_) OOC_TRY(other->Release());
  return {};
}

}  // namespace oocdnn
