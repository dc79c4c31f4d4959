#include "device/cuda/peer_path.hpp"

namespace oocdnn::cuda {

Result<std::unique_ptr<PeerPath>> PeerPath::Make(const PrimaryContext& own,
                                                 const PrimaryContext& peer, int64_t piece_bytes,
                                                 int priority) {
  std::unique_ptr<PeerPath> path(new PeerPath(own, peer));
  OOC_TRY(path->Prepare(piece_bytes, priority)
              .With(Format("%lld bytes of GPU %d, through which copies go",
                           static_cast<long long>(piece_bytes * kSlots), peer.ordinal())));
  return path;
}

// After a failure the destructor finds what was made.
Status PeerPath::Prepare(int64_t piece_bytes, int priority) {
  {
    const Current current(peer_);
    OOC_TRY(current.status());
    OOC_CUDA(driver(), cuStreamCreateWithPriority, &far_, CU_STREAM_NON_BLOCKING, priority);
    OOC_TRY(rate_.Prepare());
    for (Slot& slot : slots_) {
      OOC_CUDA(driver(), cuMemAlloc, &slot.memory, static_cast<size_t>(piece_bytes));
      OOC_CUDA(driver(), cuEventCreate, &slot.far, CU_EVENT_DISABLE_TIMING);
    }
  }
  const Current current(own_);
  OOC_TRY(current.status());
  OOC_CUDA(driver(), cuStreamCreateWithPriority, &near_, CU_STREAM_NON_BLOCKING, priority);
  for (Slot& slot : slots_) {
    OOC_CUDA(driver(), cuEventCreate, &slot.near, CU_EVENT_DISABLE_TIMING);
  }
  return {};
}

// Errors are ignored: the process may be ending, and nobody is left to handle them.
PeerPath::~PeerPath() {
  static_cast<void>(Synchronize());
  const auto destroy = [this](const PrimaryContext& context, CUstream stream,
                              CUevent Slot::* event) {
    const Current current(context);
    for (const Slot& slot : slots_) {
      if (slot.*event != nullptr) driver().cuEventDestroy(slot.*event);
    }
    if (stream != nullptr) driver().cuStreamDestroy(stream);
  };
  destroy(own_, near_, &Slot::near);
  destroy(peer_, far_, &Slot::far);
  const Current current(peer_);
  for (const Slot& slot : slots_) {
    if (slot.memory != 0) driver().cuMemFree(slot.memory);
  }
}

Status PeerPath::Wait(CUevent event) const {
  OOC_CUDA(driver(), cuStreamWaitEvent, near_, event, 0);
  OOC_CUDA(driver(), cuStreamWaitEvent, far_, event, 0);
  return {};
}

Status PeerPath::Precede(CUstream stream) const {
  OOC_CUDA(driver(), cuStreamWaitEvent, stream, Last().near, 0);
  OOC_CUDA(driver(), cuStreamWaitEvent, stream, Last().far, 0);
  return {};
}

bool PeerPath::Busy() {
  if (!busy_) return false;
  const auto reached = [this](CUevent event) {
    return driver().cuEventQuery(event) == CUDA_SUCCESS;
  };
  busy_ = !reached(Last().near) || !reached(Last().far);
  return busy_;
}

Status PeerPath::Synchronize() const {
  Status status;
  for (CUstream stream : {near_, far_}) {
    if (stream == nullptr) continue;
    status.KeepFirst(driver().Check(driver().cuStreamSynchronize(stream), "cuStreamSynchronize"));
  }
  return status;
}

}  // namespace oocdnn::cuda
