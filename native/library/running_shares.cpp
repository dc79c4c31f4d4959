#include "library/running_shares.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/guarded.hpp"

namespace oocdnn {
namespace {

// The time between two reports of progress on a thread that waits for the other devices.
constexpr std::chrono::milliseconds kReportEvery{20};

}  // namespace

std::string NameOf(const std::vector<DeviceContext*>& devices, size_t device) {
  return Format("%s (device %zu of %zu)",
                devices[device]->session().device().capabilities().name.c_str(), device + 1,
                devices.size());
}

RunningShares::RunningShares(const std::vector<DeviceContext*>& devices, const RunShare& run,
                             const Progress& progress)
    : contexts_(devices), run_(run), progress_(progress), devices_(devices.size()) {}

RunningShares::~RunningShares() {
  stopped_ = true;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ == begun_; });
}

void RunningShares::Begin(size_t device, HostWorker& worker) {
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

void RunningShares::RunHere(size_t device) {
  devices_[device].runs = true;
  Note(RunOne(device));
}

Status RunningShares::Wait() {
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

Status RunningShares::RunOne(size_t device) {
  return Guarded([&]() -> Status {
    Status status = run_(device, ProgressOf(device));
    if (status.ok()) return status;
    return std::move(status).With(NameOf(contexts_, device));
  });
}

Progress RunningShares::ProgressOf(size_t device) {
  return [this, device](int64_t done, int64_t total) {
    {
      const std::lock_guard lock(mutex_);
      devices_[device].done = done;
      devices_[device].total = total;
    }
    return device == 0 ? Report() : !stopped_;
  };
}

void RunningShares::Note(Status status) {
  if (status.ok()) return;
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  const bool interrupted = status.code() == Code::kInterrupted;
  if (first_.ok() || (first_.code() == Code::kInterrupted && !interrupted)) {
    first_ = std::move(status);
  }
}

void RunningShares::End(Status status) {
  Note(std::move(status));
  const std::lock_guard lock(mutex_);
  ++ended_;
  changed_.notify_all();
}

RunningShares::Tiles RunningShares::Sum() {
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

bool RunningShares::Report() {
  const Tiles sum = Sum();
  const bool reports = progress_ && sum.total > 0 && !stopped_;
  if (reports) reported_ = sum.done;
  if (reports && !progress_(sum.done, sum.total)) {
    Note(Error(Code::kInterrupted, "the progress callback ended the call"));
  }
  return !stopped_;
}

}  // namespace oocdnn
