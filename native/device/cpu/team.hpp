// Team: the fixed threads behind Parallel. The thread that calls For works too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

// One thread at a time calls For, and never from inside a piece. The helpers start at the first
// For that has work for them; where the system refuses threads, fewer do the work. What a piece
// throws ends the loop and leaves For.
class Team final : public Parallel {
 public:
  explicit Team(int threads) : threads_(threads) {}
  ~Team() override;
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] int threads() const override { return threads_; }
  void For(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) override;

 private:
  struct Loop {
    int64_t count, grain;
    const std::function<void(int64_t, int64_t)>& fn;
    std::atomic<int64_t> next{0};
    std::atomic<bool> failed{false};
    std::exception_ptr failure = nullptr;  // of the first piece that failed
    void Work() noexcept;                  // takes pieces until none is left
  };
  void Start();
  void Share(Loop* loop);
  void Help();

  const int threads_;
  std::vector<std::thread> helpers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  // Open to helpers while not null. A helper that wakes too late finds it null and sleeps on, so
  // that a short loop never waits for a thread to wake.
  Loop* loop_ = nullptr;
  int inside_ = 0;
  bool stop_ = false;
};

// For work that stays on the calling thread.
class Alone final : public Parallel {
 public:
  [[nodiscard]] int threads() const override { return 1; }
  void For(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) override;
};

}  // namespace oocdnn::cpu
