// Scratch: a workspace cut into slots, at best one for each thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

namespace oocdnn::cpu {

// Pieces of parallel work do not know which thread they run on, so each takes a free slot and
// gives it back. Where there are fewer slots than threads, threads wait for one another.
class Scratch {
 public:
  Scratch(void* workspace, int64_t slot_bytes, int slots)
      : base_(static_cast<char*>(workspace)),
        slot_bytes_(slot_bytes),
        slots_(slots),
        taken_(std::make_unique<std::atomic<bool>[]>(static_cast<size_t>(slots))) {}

  class Slot {
   public:
    explicit Slot(Scratch* scratch) : scratch_(scratch), index_(scratch->Take()) {}
    ~Slot() { scratch_->taken_[static_cast<size_t>(index_)].store(false); }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    [[nodiscard]] char* data() const { return scratch_->base_ + index_ * scratch_->slot_bytes_; }

   private:
    Scratch* const scratch_;
    const int index_;
  };

 private:
  int Take() {
    for (int i = 0;; i = (i + 1) % slots_) {
      if (!taken_[static_cast<size_t>(i)].exchange(true)) return i;
      if (i == slots_ - 1) std::this_thread::yield();
    }
  }

  char* const base_;
  const int64_t slot_bytes_;
  const int slots_;
  const std::unique_ptr<std::atomic<bool>[]> taken_;
};

}  // namespace oocdnn::cpu
