// RunningShares: the shares of a call while several devices run them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "exec/host_worker.hpp"
#include "library/device_context.hpp"

namespace oocdnn {

// "cuda:1 (device 2 of 2)"
std::string NameOf(const std::vector<DeviceContext*>& devices, size_t device);

// Runs the share of a device, which reports its own progress.
using RunShare = std::function<Status(size_t device, const Progress& progress)>;

// Progress of all shares is reported on the calling thread. If a share fails, the error names its
// device, and the others stop at their next tile. The destructor stops those that still run and
// waits for them, as where a callback ends the calling thread.
class RunningShares {
 public:
  // All must outlive the object.
  RunningShares(const std::vector<DeviceContext*>& devices, const RunShare& run,
                const Progress& progress);
  ~RunningShares();
  RunningShares(const RunningShares&) = delete;
  RunningShares& operator=(const RunningShares&) = delete;

  // The share of a device, on a thread that no other share has.
  void Begin(size_t device, HostWorker& worker);
  // The share of a device, on the calling thread.
  void RunHere(size_t device);
  // Waits for all, and returns the first failure.
  Status Wait();

 private:
  struct Tiles {
    bool runs = false;
    int64_t done = 0, total = 0;
  };

  Status RunOne(size_t device);
  // The progress of one device; false ends its share.
  Progress ProgressOf(size_t device);
  // A share that fails stops the others.
  void Note(Status status);
  void End(Status status);
  // All tiles of all devices that run; no total while one of them has none.
  Tiles Sum();
  // False if the caller or a failure ends the call.
  bool Report();

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

}  // namespace oocdnn
