#include "device/cpu/stream.hpp"

#include <utility>

#include "base/guarded.hpp"
#include "base/thread.hpp"
#include "device/cpu/fork.hpp"

namespace oocdnn {

namespace cpu {

void Moment::Fire() {
  const std::lock_guard lock(mutex_);
  has_fired_ = true;
  fired_.notify_all();
}

void Moment::Await() {
  std::unique_lock lock(mutex_);
  fired_.wait(lock, [&] { return has_fired_; });
}

}  // namespace cpu

void EventTag::AfterFork() {
  if (latest != nullptr) cpu::Abandon(std::move(latest));
  latest = nullptr;
}

StreamTag::StreamTag(const char* name, unsigned seed)
    : name_(name), random_(seed), state_(std::make_unique<State>()) {}

StreamTag::~StreamTag() { Stop(); }

void StreamTag::Stop() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->arrived.notify_one();
  if (state_->thread.joinable()) state_->thread.join();
}

void StreamTag::AfterFork() {
  cpu::Abandon(std::shared_ptr<State>(std::move(state_)));
  state_ = std::make_unique<State>();
}

void StreamTag::State::Serve() {
  std::unique_lock lock(mutex);
  for (;;) {
    arrived.wait(lock, [&] { return stop || !jobs.empty(); });
    if (jobs.empty()) return;
    Job job = std::move(jobs.front());
    jobs.pop_front();
    if (failure.ok() || job.always) {
      working = true;
      lock.unlock();
      Status status = Guarded(job.work);
      lock.lock();
      working = false;
      if (failure.ok()) failure = std::move(status);
    }
    if (jobs.empty()) idle.notify_all();
  }
}

Status StreamTag::Push(Job job) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (!state.thread.joinable()) {
    OOC_ASSIGN(state.thread, StartThread(name_.c_str(), [&state] { state.Serve(); }));
  }
  state.jobs.push_back(std::move(job));
  state.arrived.notify_one();
  return {};
}

Status StreamTag::Work(std::function<Status()> work) { return Push({std::move(work), false}); }

Status StreamTag::Always(std::function<void()> work) {
  return Push({[work = std::move(work)] {
                 work();
                 return Status();
               },
               true});
}

Status StreamTag::Synchronize() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.idle.wait(lock, [&] { return state.jobs.empty() && !state.working; });
  return std::exchange(state.failure, Status());
}

}  // namespace oocdnn
