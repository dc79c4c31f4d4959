#include "heap/attempts.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/guarded.hpp"
#include "base/host.hpp"
#include "base/thread.hpp"

namespace oocdnn::heap {
namespace {

constexpr int64_t kMostThreads = 8;
constexpr std::chrono::milliseconds kBetweenTold{5};
constexpr double kLongest = 1e8;  // seconds, which a clock can add

Deadline::Clock::time_point EndAfter(double seconds) {
  const std::chrono::duration<double> span(std::clamp(seconds, 0.0, kLongest));
  return Deadline::Clock::now() + std::chrono::duration_cast<Deadline::Clock::duration>(span);
}

class Attempts {
 public:
  Attempts(int64_t count, double seconds, const Attempt& attempt)
      : attempt_(attempt), end_(EndAfter(seconds)), count_(count), first_(count) {}
  // Also where the progress callback ends the calling thread.
  ~Attempts() {
    stopped_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  Attempts(const Attempts&) = delete;
  Attempts& operator=(const Attempts&) = delete;

  // The system may refuse threads. Where it refuses all, the attempts run here, and are not
  // reported.
  void Start() {
    const auto cores = int64_t{HostThreads()};
    const int64_t most = std::clamp<int64_t>(first_, 1, kMostThreads);
    const int64_t count = std::clamp<int64_t>(cores, 1, most);
    threads_.reserve(static_cast<size_t>(count));
    running_ = count;
    for (int64_t i = 0; i < count; ++i) {
      Result<std::thread> thread = StartThread("oocdnn-search", [this] { Work(); });
      if (thread.ok()) {
        threads_.push_back(std::move(thread).value());
        continue;
      }
      End(count - std::max<int64_t>(i, 1));
      if (i == 0) Work();
      return;
    }
  }

  // Waits for the end of all. Errors of attempts count where none succeeds.
  Status Wait(const Progress& progress) {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, kBetweenTold, [this] { return running_ == 0; })) {
      lock.unlock();
      const bool goes_on = progress(done_);
      lock.lock();
      if (goes_on) continue;
      stopped_ = true;
      ended_.wait(lock, [this] { return running_ == 0; });
      return Error(Code::kInterrupted, "the search was interrupted");
    }
    return first_ < count_ ? Status() : status_;
  }

  [[nodiscard]] int64_t first() const { return first_; }

 private:
  void Work() {
    bool goes_on = true;
    while (goes_on) {
      const int64_t number = next_++;
      if (number >= first_ || stopped_) break;
      const Status status = Guarded([&]() -> Status {
        Deadline deadline(end_, [this, number] { return stopped_ || number > first_; });
        OOC_ASSIGN(const bool succeeds, attempt_(number, &deadline));
        if (succeeds) Found(number);
        goes_on = !deadline.Passed();
        return {};
      });
      if (!status.ok()) Fail(status);
      ++done_;
    }
    End(1);
  }
  void Found(int64_t number) {
    int64_t first = first_;
    while (number < first && !first_.compare_exchange_weak(first, number)) {
    }
  }
  // Further attempts may succeed.
  void Fail(const Status& status) {
    const std::lock_guard lock(mutex_);
    status_.KeepFirst(status);
  }
  void End(int64_t threads) {
    const std::lock_guard lock(mutex_);
    running_ -= threads;
    ended_.notify_all();
  }

  const Attempt& attempt_;
  const Deadline::Clock::time_point end_;
  const int64_t count_;
  std::atomic<int64_t> next_ = 0, done_ = 0;
  std::atomic<int64_t> first_;  // that succeeds so far
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;
  std::condition_variable ended_;
  int64_t running_ = 0;
  Status status_;
  std::vector<std::thread> threads_;
};

}  // namespace

Result<std::optional<int64_t>> FirstOf(int64_t count, double seconds, const Progress& progress,
                                       const Attempt& attempt) {
  Attempts attempts(count, seconds, attempt);
  attempts.Start();
  OOC_TRY(attempts.Wait(progress));
  if (attempts.first() == count) return std::optional<int64_t>();
  return std::optional<int64_t>(attempts.first());
}

}  // namespace oocdnn::heap
