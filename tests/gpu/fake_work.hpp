// The fake driver's streams: queues of work, which whoever waits does.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "abi/cuda_driver.h"

// A place in a stream that the stream has come to, or not yet.
struct Mark {
  CUstream stream = nullptr;
  bool reached = false;
  std::chrono::steady_clock::time_point at;
};
struct CUevent_st {
  bool timed = false;
  CUcontext context = nullptr;
  std::shared_ptr<Mark> mark;  // of the last record
};
struct CUstream_st {
  int priority = 0;
  CUcontext context = nullptr;
  std::deque<std::function<void()>> queue;
};

// Whoever waits for it comes before who had it last, so that a thread that always has work does not
// keep it for itself.
class FairMutex {
 public:
  void lock() {
    if (owner_ != std::this_thread::get_id()) {
      const std::lock_guard turn(next_);
      mutex_.lock();
      owner_ = std::this_thread::get_id();
    }
    ++depth_;
  }
  void unlock() {
    if (--depth_ > 0) return;
    owner_ = std::thread::id();
    mutex_.unlock();
  }

 private:
  std::mutex next_, mutex_;
  std::atomic<std::thread::id> owner_;
  int depth_ = 0;
};

// Whoever waits does the work, one at a time.
inline FairMutex work_mutex;
inline CUcontext working = nullptr;         // whose work was done last
inline int turns = 0;                       // how often that was another's than before
inline std::chrono::nanoseconds passed{0};  // beyond what the clock says
// What events are stamped with. With OOC_FAKE_CLOCK=still nothing passes but what is said to.
inline std::chrono::steady_clock::time_point Now() {
  static const bool still = std::getenv("OOC_FAKE_CLOCK") != nullptr;
  return (still ? std::chrono::steady_clock::time_point() : std::chrono::steady_clock::now()) +
         passed;
}
inline std::set<CUstream>& Streams() {
  static auto* const streams = new std::set<CUstream>;
  return *streams;
}

// Does the stream's work in order, up to `mark` where one is given.
inline void Work(CUstream stream, const Mark* mark) {
  const std::lock_guard lock(work_mutex);
  if (Streams().count(stream) == 0) return;
  while (!stream->queue.empty() && (mark == nullptr || !mark->reached)) {
    const std::function<void()> next = std::move(stream->queue.front());
    stream->queue.pop_front();
    turns += std::exchange(working, stream->context) != stream->context;
    next();
  }
}

inline void WorkAll() {
  const std::lock_guard lock(work_mutex);
  for (const CUstream stream : Streams()) Work(stream, nullptr);
}

// A stream that nobody made (the default ones) waits for all others and is never behind.
inline void Enqueue(CUstream stream, std::function<void()> work) {
  const std::lock_guard lock(work_mutex);
  if (Streams().count(stream) == 1) {
    stream->queue.push_back(std::move(work));
    return;
  }
  WorkAll();
  work();
}

inline void WaitFor(const std::shared_ptr<Mark>& mark) {
  if (mark != nullptr) Work(mark->stream, mark.get());
}
