// Starting the library's own threads, and cancellation of the caller's.
#pragma once

#include <pthread.h>

#include <functional>
#include <memory>
#include <thread>

#include "base/status.hpp"

namespace oocdnn {

// A thread that runs `body`, with every signal blocked (they belong to the program's own threads)
// and `name` (at most 15 characters are kept) for debuggers. kDeviceError when the system refuses.
// `body` may not throw, see Guarded.
Result<std::thread> StartThread(const char* name, std::function<void()> body);

// Address space that is there when a thread begins, which takes it back first. Without it the
// system ends the process where the thread needs its thread-local storage, for instance to throw.
struct GiveBack {
  void operator()(void* memory) const;
};
using Spare = std::unique_ptr<void, GiveBack>;
Result<Spare> TakeSpare();

// Defers pthread_cancel of the calling thread while it lives: the library waits and reads files at
// places that nothing may unwind from. Only for threads with deferred cancellation, the default.
class Uncancelled {
 public:
  Uncancelled() : outer_(innermost_) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_);
    innermost_ = this;
  }
  ~Uncancelled() {
    innermost_ = outer_;
    pthread_setcancelstate(before_, nullptr);
  }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

  // Restores the caller's cancellation state while it lives, for a callback of the caller's.
  class Lifted {
   public:
    Lifted() {
      if (innermost_ != nullptr) pthread_setcancelstate(innermost_->before_, &state_);
    }
    ~Lifted() { pthread_setcancelstate(state_, nullptr); }
    Lifted(const Lifted&) = delete;
    Lifted& operator=(const Lifted&) = delete;

   private:
    int state_ = PTHREAD_CANCEL_ENABLE;
  };

 private:
  static thread_local Uncancelled* innermost_;
  Uncancelled* const outer_;
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace oocdnn
