#include "device/cpu/onednn/threads.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/process_lock.hpp"
#include "base/thread.hpp"

namespace oocdnn::cpu::onednn {
namespace {

using Count = std::atomic<int>;

// OpenMP's threads that compute for one thread, besides that one. They count themselves, because
// OpenMP ends those that a smaller team leaves over, and oneDNN asks for smaller teams.
struct Known {
  std::shared_ptr<Count> alive = std::make_shared<Count>(0);
  int threads = 0;  // the size of the team that was started
  int joined = 0;   // of it; with OMP_DYNAMIC OpenMP may start fewer
  std::chrono::steady_clock::time_point started{};
};

// For so long after a team was started, the system is taken to have room for its threads, also for
// those that have ended since. Short calls ask for smaller teams, and to start threads for each of
// them would be slow.
constexpr std::chrono::milliseconds kRoomStays(200);

// One of these threads.
class Member {
 public:
  Member() = default;
  ~Member() { Leave(); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  void Join(const std::shared_ptr<Count>& alive) {
    if (alive_ == alive) return;
    Leave();
    alive_ = alive;
    ++*alive_;
  }

 private:
  void Leave() {
    if (alive_ != nullptr) --*alive_;
  }
  std::shared_ptr<Count> alive_;
};

Known& KnownHere() {
  thread_local Known known;
  return known;
}

thread_local Member member;

// The size of OpenMP's stacks: OMP_STACKSIZE, in KiB where there is no unit, else the system's.
size_t StackBytes() {
  const char* const text = std::getenv("OMP_STACKSIZE");
  if (text == nullptr) return 0;
  char* unit = nullptr;
  const unsigned long long number = std::strtoull(text, &unit, 10);
  while (*unit == ' ') ++unit;
  const int shift = std::strchr("bB", *unit) != nullptr && *unit != 0   ? 0
                    : std::strchr("mM", *unit) != nullptr && *unit != 0 ? 20
                    : std::strchr("gG", *unit) != nullptr && *unit != 0 ? 30
                                                                        : 10;
  return static_cast<size_t>(number) << shift;
}

// A thread that waits until all are there.
struct Trial {
  std::atomic<bool>* over = nullptr;
  std::atomic<pid_t> id{0};
  pthread_t thread{};
};

void* Attend(void* argument) {
  Trial& trial = *static_cast<Trial*>(argument);
  trial.id = static_cast<pid_t>(syscall(SYS_gettid));
  trial.over->wait(false);
  return nullptr;
}

// A thread that has been joined counts against the limit of processes until the system has let go
// of it.
void AwaitEnd(pid_t id) {
  constexpr std::chrono::milliseconds kPatience(100);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (syscall(SYS_tgkill, getpid(), id, 0) == 0 && std::chrono::steady_clock::now() < end) {
    sched_yield();
  }
}

// Succeeds if the system has so many more threads at once, and memory for what OpenMP keeps of
// them.
Status TryThreads(int count) {
  OOC_ASSIGN(const Spare spare, TakeSpare());
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  if (const size_t bytes = StackBytes(); bytes > 0) pthread_attr_setstacksize(&attributes, bytes);
  sigset_t all, before;
  sigfillset(&all);
  std::atomic<bool> over{false};
  std::vector<Trial> trials(static_cast<size_t>(count));
  size_t started = 0;
  int error = 0;
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (started < trials.size() && error == 0) {
    Trial& trial = trials[started];
    trial.over = &over;
    error = pthread_create(&trial.thread, &attributes, Attend, &trial);
    if (error == 0) ++started;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  over = true;
  over.notify_all();
  for (size_t i = 0; i < started; ++i) pthread_join(trials[i].thread, nullptr);
  for (size_t i = 0; i < started; ++i) AwaitEnd(trials[i].id);
  if (error == 0) return {};
  return Error(Code::kDeviceError,
               "cannot start thread %zu of %d that oneDNN computes with besides the first: %s; use "
               "fewer threads (threads=, OOCDNN_THREADS), or allow more processes (ulimit -u) or "
               "more address space (ulimit -v)",
               started + 1, count, std::strerror(error));
}

}  // namespace

Status TeamSize::Start() const {
  Known& known = KnownHere();
  const int others = threads_ - 1;
  if (others < 1) return {};
  if (known.threads == threads_) {
    if (*known.alive >= known.joined) return {};
    if (std::chrono::steady_clock::now() - known.started < kRoomStays) return {};
  }
  static ProcessLock turn;  // no two try and start at once
  const std::lock_guard held(turn);
  OOC_TRY(TryThreads(std::max(others - known.alive->load(), 1)));
  Count joined{0};
  const std::shared_ptr<Count> alive = known.alive;
#pragma omp parallel
  {
    if (omp_get_thread_num() != 0) {
      member.Join(alive);
      ++joined;
    }
  }
  known.threads = threads_;
  known.joined = joined;
  known.started = std::chrono::steady_clock::now();
  return {};
}

}  // namespace oocdnn::cpu::onednn
