#include "exec/copy_team.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.hpp"

namespace oocdnn {
namespace {

struct Batch {
  const std::function<void(int64_t)>& piece;
  const int64_t count;
  std::atomic<int64_t> next = 0;
  int at_work = 0;  // threads

  void Work() {
    for (int64_t i = next++; i < count; i = next++) piece(i);
  }
};

}  // namespace

struct CopyTeam::State {
  std::mutex mutex;
  std::condition_variable arrived, finished;
  std::vector<Batch*> open;  // whose pieces are not all taken; the first is served first
  std::vector<std::thread> threads;
  size_t wanted = 0;
  bool closing = false;

  // Works on a batch until all its pieces are taken, with the lock given up meanwhile: it is not
  // asked for again with every piece.
  void Join(Batch* batch, std::unique_lock<std::mutex>* lock) {
    ++batch->at_work;
    lock->unlock();
    batch->Work();
    lock->lock();
    open.erase(std::remove(open.begin(), open.end(), batch), open.end());
    if (--batch->at_work == 0) finished.notify_all();
  }

  void Serve() {
    std::unique_lock lock(mutex);
    while (true) {
      arrived.wait(lock, [&] { return closing || !open.empty(); });
      if (open.empty()) return;
      Join(open.front(), &lock);
    }
  }

  // Where the system refuses a thread, those that are there do the work.
  void Start() {
    threads.reserve(wanted);
    while (threads.size() < wanted) {
      Result<std::thread> thread = StartThread("oocdnn-copy", [this] { Serve(); });
      if (!thread.ok()) {
        wanted = threads.size();
        return;
      }
      threads.push_back(std::move(thread).value());
    }
  }
};

CopyTeam::CopyTeam(int threads)
    : threads_(std::max(threads, 1)), state_(std::make_unique<State>()) {
  state_->wanted = static_cast<size_t>(threads_ - 1);
}

CopyTeam::~CopyTeam() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closing = true;
  }
  state_->arrived.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

void CopyTeam::Run(int64_t count, const std::function<void(int64_t)>& piece) {
  if (count <= 0) return;
  Batch batch{piece, count};
  std::unique_lock lock(state_->mutex);
  if (count > 1) state_->Start();
  state_->open.push_back(&batch);
  state_->arrived.notify_all();
  state_->Join(&batch, &lock);
  state_->finished.wait(lock, [&] { return batch.at_work == 0; });
}

}  // namespace oocdnn
