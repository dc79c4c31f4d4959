#include "exec/host_worker.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/guarded.hpp"
#include "base/thread.hpp"

namespace oocdnn {

struct HostWorker::State {
  explicit State(const char* thread_name) : name(thread_name) {}

  const char* const name;
  std::mutex mutex;
  std::condition_variable submitted, finished;
  std::deque<Job> jobs;
  Ticket last = 0, done = 0;
  Status error;
  bool closing = false;
  std::thread thread;

  void Loop() {
    std::unique_lock lock(mutex);
    while (true) {
      submitted.wait(lock, [&] { return closing || !jobs.empty(); });
      if (jobs.empty()) return;
      const Job job = std::move(jobs.front());
      jobs.pop_front();
      if (error.ok()) {
        lock.unlock();
        Status status = Guarded(job);
        lock.lock();
        if (error.ok()) error = std::move(status);
      }
      ++done;
      finished.notify_all();
    }
  }
};

HostWorker::HostWorker(const char* name) : state_(std::make_unique<State>(name)) {}

HostWorker::~HostWorker() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  state_->submitted.notify_all();
  if (state_->thread.joinable()) state_->thread.join();
}

Result<HostWorker::Ticket> HostWorker::Submit(Job job) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->thread.joinable()) {
    OOC_ASSIGN(state_->thread,
               StartThread(state_->name, [state = state_.get()] { state->Loop(); }));
  }
  state_->jobs.push_back(std::move(job));
  state_->submitted.notify_all();
  return ++state_->last;
}

Status HostWorker::Wait(Ticket ticket) {
  std::unique_lock lock(state_->mutex);
  state_->finished.wait(lock, [&] { return state_->done >= ticket; });
  return std::exchange(state_->error, Status());
}

Status HostWorker::Finish() {
  Ticket last = 0;
  {
    const std::lock_guard lock(state_->mutex);
    last = state_->last;
  }
  return Wait(last);
}

}  // namespace oocdnn
