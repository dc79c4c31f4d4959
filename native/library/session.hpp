// Session: a device with a budget, and what calls on it use: memory, threads and streams.
//
// A session runs one call at a time; calls from several threads are serialized. In a forked child
// it creates new threads and streams.
#pragma once

#include <memory>
#include <mutex>
#include <span>

#include "base/process_lock.hpp"
#include "exec/tile_loop.hpp"
#include "library/context_options.hpp"
#include "library/section_buffers.hpp"

namespace oocdnn {

// The error of a call that began within another one of the same context.
Status NestedCall(const char* function);

class Session {
 public:
  // The right to use the session, which one thread has at a time.
  using Turn = std::unique_lock<ProcessLock>;

  static Result<std::unique_ptr<Session>> Open(ContextOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] const ContextOptions& options() const { return options_; }
  [[nodiscard]] const DeviceStack& stack() const { return stack_; }
  [[nodiscard]] Device& device() const { return *stack_.device; }
  [[nodiscard]] int64_t budget() const { return budget_; }
  // The budget of a call with these operands. An automatic one is less for files where the device
  // has the host's memory.
  [[nodiscard]] int64_t BudgetFor(std::span<const OperandViews> tensors) const;
  // Bytes that the library may pin without being asked to: 0 if the device gains nothing from
  // pinned memory, or the user allows none.
  [[nodiscard]] int64_t AutoPinBytes() const;

  // `function` is named in the error of a nested call.
  Result<Turn> TakeTurn(const char* function);
  // The same in places where no call can be nested, and where threads are not used.
  Turn WaitForTurn() { return Turn(turn_); }
  // True if the calling thread is inside a call, as in a callback.
  [[nodiscard]] bool IsCalledByThisThread() const { return turn_.HeldByThisThread(); }

  // The turn is held in all functions below.
  TileLoop& loop();
  [[nodiscard]] Arena& arena() { return *arena_; }
  [[nodiscard]] Slabs& slabs() { return *slabs_; }
  [[nodiscard]] SectionBuffers& buffers() { return *buffers_; }
  // Makes all later work wait for the work that is now in the caller's stream. Returns that stream,
  // null where the device has no such streams.
  Result<Stream> Follow(void* stream);
  // Waits for what runs.
  Status Settle() { return loop().Settle(); }
  // Settles, and frees the arena for what needs device memory of its own.
  Status FreeArena();
  // Calls `make`, which prepares engines or searches for a plan. A device that times engines
  // allocates memory for that, and so does a search that times plans; the arena's memory is
  // released for them meanwhile.
  template <class Make>
  auto BesideArena(const Make& make) -> decltype(make());
  // Frees all memory.
  Status Release();
  // Waits for what runs, and writes the trace that was asked for; does nothing in a forked child.
  // To be called before plans are destroyed.
  void End();

 private:
  struct ThreadState;  // threads and what depends on them: a forked child builds it anew

  explicit Session(ContextOptions options);
  Status Open();
  // Creates the thread state anew in a forked child.
  Status EnterProcess();
  [[nodiscard]] bool IsForked() const;

  ContextOptions options_;
  DeviceStack stack_;
  int64_t budget_ = 0;
  bool auto_budget_ = false;
  ProcessLock turn_;
  std::unique_ptr<ThreadState> thread_state_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Slabs> slabs_;
  std::unique_ptr<SectionBuffers> buffers_;
};

template <class Make>
auto Session::BesideArena(const Make& make) -> decltype(make()) {
  const bool tries =
      device().capabilities().tries_engines || options_.planning == Planning::kMeasure;
  const int64_t held = tries ? arena_->bytes() : 0;
  if (held == 0) return make();
  OOC_TRY(FreeArena());
  auto made = make();
  static_cast<void>(arena_->Reserve(held));  // if that fails, the call that needs it says so
  return made;
}

}  // namespace oocdnn
