#include "device/cuda/peer_paths.hpp"

#include <algorithm>

namespace oocdnn::cuda {
namespace {

constexpr int64_t kLeastPart = 8;  // of the largest piece: a shorter one takes the shorter way
// Pieces by which a link may be ahead: what was copied long ago says nothing of now.
constexpr double kAhead = 2.0;

}  // namespace

Result<std::unique_ptr<PeerPaths>> PeerPaths::Make(const PrimaryContext& own,
                                                   const BorrowedLinks& links, CUstream stream,
                                                   int priority) {
  std::unique_ptr<PeerPaths> paths(new PeerPaths(own, links.piece_bytes, stream));
  OOC_TRY(paths->Prepare(own, links.peers, priority));
  return paths;
}

Status PeerPaths::Prepare(const PrimaryContext& own,
                          const std::vector<const PrimaryContext*>& peers, int priority) {
  OOC_TRY(rate_.Prepare());
  OOC_CUDA(driver_, cuStreamCreateWithPriority, &join_, CU_STREAM_NON_BLOCKING, priority);
  OOC_CUDA(driver_, cuEventCreate, &mark_, CU_EVENT_DISABLE_TIMING);
  for (const PrimaryContext* peer : peers) {
    OOC_ASSIGN(std::unique_ptr<PeerPath> path, PeerPath::Make(own, *peer, piece_bytes_, priority));
    paths_.push_back(std::move(path));
  }
  ends_.resize(1 + paths_.size());
  return {};
}

PeerPaths::~PeerPaths() {
  paths_.clear();
  if (join_ != nullptr) {
    driver_.cuStreamSynchronize(join_);
    driver_.cuStreamDestroy(join_);
  }
  if (mark_ != nullptr) driver_.cuEventDestroy(mark_);
}

Status PeerPaths::Turn(Bound bound) {
  if (bound == bound_) return {};
  bound_ = bound;
  return Settle();
}

Result<PeerPath*> PeerPaths::Choose(int64_t bytes) {
  const auto size = static_cast<double>(bytes);
  const double own_seconds = size / rate_.Read();
  size_t best = 0;
  double soonest = ends_[0] + own_seconds;
  for (size_t i = 0; bytes * kLeastPart >= piece_bytes_ && i < paths_.size(); ++i) {
    const double end = ends_[1 + i] + size / paths_[i]->Rate();
    if (end < soonest) {
      soonest = end;
      best = 1 + i;
    }
  }
  ends_[best] = soonest;
  const double least = *std::max_element(ends_.begin(), ends_.end()) -
                       kAhead * static_cast<double>(piece_bytes_) / rate_.Read();
  for (double& end : ends_) end = std::max(end - least, 0.0);
  if (best == 0) return static_cast<PeerPath*>(nullptr);
  if (follow_) {
    OOC_CUDA(driver_, cuEventRecord, mark_, stream_);
    for (const auto& path : paths_) OOC_TRY(path->Wait(mark_));
    follow_ = false;
  }
  return paths_[best - 1].get();
}

Status PeerPaths::Settle() {
  follow_ = true;
  for (const auto& path : paths_) {
    if (path->Busy()) OOC_TRY(path->Precede(stream_));
  }
  return {};
}

Status PeerPaths::Wait(CUevent event) const {
  for (const auto& path : paths_) OOC_TRY(path->Wait(event));
  return {};
}

// The stream itself goes on with its next copy: another one comes after the copies of all links.
Status PeerPaths::Record(CUevent event) {
  bool joined = false;
  for (const auto& path : paths_) {
    if (!path->Busy()) continue;
    joined = true;
    OOC_TRY(path->Precede(join_));
  }
  if (!joined) {
    OOC_CUDA(driver_, cuEventRecord, event, stream_);
    return {};
  }
  OOC_CUDA(driver_, cuEventRecord, mark_, stream_);
  OOC_CUDA(driver_, cuStreamWaitEvent, join_, mark_, 0);
  OOC_CUDA(driver_, cuEventRecord, event, join_);
  return {};
}

Status PeerPaths::Synchronize() const {
  for (const auto& path : paths_) OOC_TRY(path->Synchronize());
  return {};
}

}  // namespace oocdnn::cuda
