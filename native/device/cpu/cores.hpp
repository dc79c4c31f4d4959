// Cores: one dedicated thread on which the heavy work of all streams takes turns.
//
// It exists so that one team of helpers (ours, and the OpenMP team of an engine, which lives with
// the thread that starts it) serves any number of streams.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "device/cpu/team.hpp"

namespace oocdnn::cpu {

class Cores {
 public:
  explicit Cores(int threads);
  ~Cores();  // nothing may be running
  Cores(const Cores&) = delete;
  Cores& operator=(const Cores&) = delete;

  // Runs `work` on the dedicated thread and returns when it is done; first come, first served.
  // Any thread but the dedicated one. Fails where the thread cannot be started, or `work` throws.
  Status Run(const std::function<void(Parallel&)>& work);

  // In a forked child, before anything else: forget the threads of the parent.
  void AfterFork();

 private:
  struct Job {
    const std::function<void(Parallel&)>& work;
    std::condition_variable done;
    Status status;
    bool finished = false;
  };
  struct State {
    explicit State(int threads) : team(threads) {}
    void Serve();
    std::mutex mutex;
    std::condition_variable arrived;
    std::deque<Job*> jobs;
    bool stop = false;
    Team team;
    std::thread thread;  // started by the first Run
  };

  const int threads_;
  std::unique_ptr<State> state_;
};

}  // namespace oocdnn::cpu
