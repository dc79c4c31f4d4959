// A way between host memory and a GPU that leads through a peer: over the peer's own link, a little
// of its memory, and the link between the two GPUs.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "device/cuda/link_rate.hpp"
#include "device/cuda/primary_context.hpp"

namespace oocdnn::cuda {

enum class CopyDirection : uint8_t { kIn, kOut };  // out: away from the GPU

// Copies go in pieces, each in two steps that overlap with those of its neighbours. Calls need the
// GPU's context current.
class PeerPath {
 public:
  // `peer`: its memory is reached, and it lives as long. `piece_bytes`: of the largest piece.
  // kOutOfMemory where the peer has no memory left.
  static Result<std::unique_ptr<PeerPath>> Make(const PrimaryContext& own,
                                                const PrimaryContext& peer, int64_t piece_bytes,
                                                int priority);
  ~PeerPath();  // waits for the copies
  PeerPath(const PeerPath&) = delete;
  PeerPath& operator=(const PeerPath&) = delete;

  // One piece, behind the ones before and what was waited for: first(stream, middle) enqueues the
  // step to the peer's memory at `middle`, second(stream, middle) the step from there. The step
  // over the peer's link is on a stream of the peer's, and a copy engine does it; the other one is
  // on a stream of the GPU's.
  template <class First, class Second>
  Status Carry(CopyDirection direction, int64_t bytes, const First& first, const Second& second) {
    const Slot& slot = slots_[turn_];
    turn_ = (turn_ + 1) % kSlots;
    busy_ = true;
    const Step near{near_, slot.near}, far{far_, slot.far};
    const Step &from = direction == CopyDirection::kIn ? far : near,
               &to = direction == CopyDirection::kIn ? near : far;
    const auto run = [&](const Step& step, const auto& enqueue) {
      const auto copy = [&] { return enqueue(step.stream, slot.memory); };
      return step.stream == far_ ? rate_.Timed(far_, bytes, copy) : copy();
    };
    OOC_CUDA(driver(), cuStreamWaitEvent, from.stream, to.done, 0);  // the slot is free
    OOC_TRY(run(from, first));
    OOC_CUDA(driver(), cuEventRecord, from.done, from.stream);
    OOC_CUDA(driver(), cuStreamWaitEvent, to.stream, from.done, 0);
    OOC_TRY(run(to, second));
    OOC_CUDA(driver(), cuEventRecord, to.done, to.stream);
    return {};
  }

  // The pieces from here on wait for the event.
  Status Wait(CUevent event) const;
  // The stream waits for the pieces so far.
  Status Precede(CUstream stream) const;
  // True while a piece is being copied.
  bool Busy();
  Status Synchronize() const;  // waits for both streams; the first error
  // Over the peer's link.
  LinkRate& rate() { return rate_; }

 private:
  // A part of the peer's memory. `near` and `far` are recorded after its last steps on `near_` and
  // `far_`.
  struct Slot {
    CUdeviceptr memory = 0;
    CUevent near = nullptr, far = nullptr;
  };
  static constexpr size_t kSlots = 3;
  // One of the two steps of a piece: its stream, and the slot's event of that stream.
  struct Step {
    CUstream stream;
    CUevent done;
  };

  PeerPath(const PrimaryContext& own, const PrimaryContext& peer)
      : own_(own), peer_(peer), rate_(own.driver()) {}
  Status Prepare(int64_t piece_bytes, int priority);
  [[nodiscard]] const Driver& driver() const { return own_.driver(); }
  [[nodiscard]] const Slot& Last() const { return slots_[(turn_ + kSlots - 1) % kSlots]; }

  const PrimaryContext &own_, &peer_;
  CUstream near_ = nullptr, far_ = nullptr;  // of the GPU, and of the peer
  std::array<Slot, kSlots> slots_;
  size_t turn_ = 0;
  bool busy_ = false;
  LinkRate rate_;
};

}  // namespace oocdnn::cuda
