#include "device/cpu/cores.hpp"

#include <utility>

#include "base/guarded.hpp"
#include "base/thread.hpp"
#include "device/cpu/fork.hpp"

namespace oocdnn::cpu {

Cores::Cores(int threads) : threads_(threads), state_(std::make_unique<State>(threads)) {}

Cores::~Cores() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->arrived.notify_one();
  if (state_->thread.joinable()) state_->thread.join();
}

void Cores::AfterFork() {
  Abandon(std::shared_ptr<State>(std::move(state_)));
  state_ = std::make_unique<State>(threads_);
}

void Cores::State::Serve() {
  std::unique_lock lock(mutex);
  for (;;) {
    arrived.wait(lock, [&] { return stop || !jobs.empty(); });
    if (jobs.empty()) return;
    Job* const job = jobs.front();
    jobs.pop_front();
    lock.unlock();
    job->status = Guarded([&] {
      job->work(team);
      return Status();
    });
    lock.lock();
    job->finished = true;
    job->done.notify_one();  // under the lock: the job lives on its caller's stack
  }
}

Status Cores::Run(const std::function<void(Parallel&)>& work) {
  State& state = *state_;
  Job job{work, {}, {}, false};
  std::unique_lock lock(state.mutex);
  if (!state.thread.joinable()) {
    OOC_ASSIGN(state.thread, StartThread("oocdnn-cores", [&state] { state.Serve(); }));
  }
  state.jobs.push_back(&job);
  state.arrived.notify_one();
  job.done.wait(lock, [&] { return job.finished; });
  return std::move(job.status);
}

}  // namespace oocdnn::cpu
