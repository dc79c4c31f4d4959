#include "exec/copy_team.hpp"

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread.hpp"

namespace oocdnn {
namespace {

struct Batch {
  const std::function<void(int64_t)>& piece;
  int64_t count, next = 0, running = 0;
};

}  // namespace

struct CopyTeam::State {
  std::mutex mutex;
  std::condition_variable arrived, finished;
  std::list<Batch*> open;  // batches with pieces that nobody has taken; the front is served next
  std::vector<std::thread> threads;
  size_t wanted = 0;
  bool closing = false;

  // Does the next piece of a batch, with the lock given up meanwhile.
  void Do(Batch* batch, std::unique_lock<std::mutex>* lock) {
    const int64_t index = batch->next++;
    if (batch->next == batch->count) open.remove(batch);
    ++batch->running;
    lock->unlock();
    batch->piece(index);
    lock->lock();
    --batch->running;
    if (batch->next == batch->count && batch->running == 0) finished.notify_all();
  }

  void Serve() {
    std::unique_lock lock(mutex);
    while (true) {
      arrived.wait(lock, [&] { return closing || !open.empty(); });
      if (open.empty()) return;
      Batch* const batch = open.front();
      open.splice(open.end(), open, open.begin());  // the next piece is another batch's
      Do(batch, &lock);
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
  while (batch.next < batch.count) state_->Do(&batch, &lock);
  state_->finished.wait(lock, [&] { return batch.running == 0; });
}

}  // namespace oocdnn
