// Threads that share out the pieces of host copies. One core does not fill a wire.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace oocdnn {

class CopyTeam {
 public:
  // At most `threads` at work for one caller, the caller itself among them; started at first use.
  explicit CopyTeam(int threads);
  ~CopyTeam();
  CopyTeam(const CopyTeam&) = delete;
  CopyTeam& operator=(const CopyTeam&) = delete;
  [[nodiscard]] int threads() const { return threads_; }

  // Calls piece(i), which may not throw, for each i in [0, count) in any order and returns when all
  // have returned. May be called from several threads at once: who comes first is served first,
  // and while the last of its pieces are at work the others of the team go on to the next.
  void Run(int64_t count, const std::function<void(int64_t)>& piece);

 private:
  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

}  // namespace oocdnn
