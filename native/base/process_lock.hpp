// ProcessLock: a mutex for what outlives a fork. A thread of the parent that holds it when the
// process forks is not there in the child to give it back, so there it counts as free.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace oocdnn {

class ProcessLock {
 public:
  ProcessLock() = default;
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;

  // As std::mutex has them, for std::lock_guard.
  void lock() {
    const pid_t self = getpid();
    pid_t holder = 0;
    while (!holder_.compare_exchange_weak(holder, self)) {
      if (holder != self) continue;  // free, or held by a thread of an ancestor
      holder_.wait(self);
      holder = 0;
    }
    thread_ = pthread_self();
  }
  void unlock() {
    thread_ = pthread_t{};
    holder_ = 0;
    holder_.notify_one();
  }
  // Whether the calling thread holds it, so that lock() would never return.
  [[nodiscard]] bool HeldByThisThread() const {
    return thread_ == pthread_self() && holder_ == getpid();
  }

 private:
  std::atomic<pid_t> holder_{0};     // the process whose thread holds it; 0: nobody
  std::atomic<pthread_t> thread_{};  // the thread that holds it
};

}  // namespace oocdnn
