#include "device/cpu/team.hpp"

#include <algorithm>

#include "base/thread.hpp"

namespace oocdnn::cpu {

Team::~Team() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Team::Loop::Work() noexcept {
  try {
    for (;;) {
      const int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      fn(begin, std::min(begin + grain, count));
    }
  } catch (...) {
    next = count;
    if (!failed.exchange(true)) failure = std::current_exception();
  }
}

void Team::Start() {
  helpers_.reserve(static_cast<size_t>(threads_ - 1));
  while (static_cast<int>(helpers_.size()) < threads_ - 1) {
    auto helper = StartThread("oocdnn-team", [this] { Help(); });
    if (!helper.ok()) return;
    helpers_.push_back(std::move(helper).value());
  }
}

void Team::Help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || loop_ != nullptr; });
    if (stop_) return;
    Loop* const loop = loop_;
    ++inside_;
    lock.unlock();
    loop->Work();
    lock.lock();
    if (loop_ == loop) loop_ = nullptr;  // nothing is left in it: let nobody else come in
    if (--inside_ == 0) done_.notify_one();
  }
}

void Team::Share(Loop* loop) {
  Start();
  {
    const std::lock_guard lock(mutex_);
    loop_ = loop;
  }
  wake_.notify_all();
  loop->Work();
  std::unique_lock lock(mutex_);
  loop_ = nullptr;
  done_.wait(lock, [&] { return inside_ == 0; });
}

void Team::For(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) {
  if (count <= 0) return;
  Loop loop{count, std::max<int64_t>(grain, 1), fn};
  if (count <= loop.grain || threads_ <= 1) {
    loop.Work();
  } else {
    Share(&loop);
  }
  if (loop.failure != nullptr) std::rethrow_exception(loop.failure);
}

void Alone::For(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& fn) {
  for (int64_t begin = 0; begin < count; begin += std::max<int64_t>(grain, 1)) {
    fn(begin, std::min(begin + std::max<int64_t>(grain, 1), count));
  }
}

}  // namespace oocdnn::cpu
