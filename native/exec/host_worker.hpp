// A thread that does host work one job after the other: it reads and writes files, or runs the
// share of a device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/status.hpp"

namespace oocdnn {

class HostWorker {
 public:
  using Job = std::function<Status()>;
  using Ticket = int64_t;  // 0: nothing to wait for

  // `name` of the thread, for debuggers.
  explicit HostWorker(const char* name = "oocdnn-files");
  ~HostWorker();  // finishes what was submitted
  HostWorker(const HostWorker&) = delete;
  HostWorker& operator=(const HostWorker&) = delete;

  // kDeviceError where the system refuses the thread, which starts with the first job.
  Result<Ticket> Submit(Job job);
  // Waits until the job of this ticket, and so every earlier one, is done. Returns the first error
  // since the last Wait; jobs behind an error are not run until it has been fetched.
  Status Wait(Ticket ticket);
  // Waits for everything.
  Status Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace oocdnn
