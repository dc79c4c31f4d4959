// Streams as worker threads, and events as moments that a stream reaches.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>

#include "device/device.hpp"

namespace oocdnn::cpu {

// One recording of an event. Any thread; fires once and stays fired.
class Moment {
 public:
  void Fire();
  void Await();

 private:
  std::mutex mutex_;
  std::condition_variable fired_;
  bool has_fired_ = false;
};

}  // namespace oocdnn::cpu

namespace oocdnn {

// An event is its latest recording: a wait takes the one that is there when it is enqueued, so
// that recording again never moves a wait that was enqueued before. Null: never recorded.
struct EventTag {
  std::shared_ptr<cpu::Moment> latest;
  void AfterFork();  // in a forked child, where nobody would fire it any more
};

// A queue of work and the thread that does it, in order. One thread at a time enqueues. The thread
// starts with the first piece of work.
struct StreamTag {
 public:
  StreamTag(const char* name, unsigned seed);
  ~StreamTag();  // does what is still queued, then ends the thread
  StreamTag(const StreamTag&) = delete;
  StreamTag& operator=(const StreamTag&) = delete;

  // Work is skipped once something before it has failed. Returns where no thread can be started.
  Status Work(std::function<Status()> work);
  // Done even after a failure: recording and waiting, so that an order once promised still holds.
  Status Always(std::function<void()> work);
  // Waits until the queue is empty; returns the first failure since the last call and clears it.
  Status Synchronize();

  // For the work itself, on the stream's thread: time it has executed, and its random numbers.
  void AddBusy(int64_t nanoseconds) { busy_ns_.fetch_add(nanoseconds); }
  std::minstd_rand& random() { return random_; }
  [[nodiscard]] double BusySeconds() const { return static_cast<double>(busy_ns_.load()) * 1e-9; }

  // In a forked child, before anything else: forget the parent's thread and what it had to do.
  void AfterFork();

 private:
  struct Job {
    std::function<Status()> work;
    bool always = false;
  };
  struct State {
    void Serve();
    std::mutex mutex;
    std::condition_variable arrived, idle;
    std::deque<Job> jobs;
    bool working = false, stop = false;
    Status failure;
    std::thread thread;
  };
  Status Push(Job job);
  void Stop();

  const std::string name_;
  std::minstd_rand random_;
  std::atomic<int64_t> busy_ns_{0};
  std::unique_ptr<State> state_;
};

}  // namespace oocdnn
