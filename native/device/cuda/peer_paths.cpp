#include "device/cuda/peer_paths.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int64_t kLeastPart = 8;  // of the largest piece: a shorter one takes the shorter way
// Pieces by which a link may be ahead: what was copied long ago says nothing of now.
constexpr double kAhead = 8.0;
constexpr int64_t kTimedEvery = 16, kProbedEvery = 512;  // pieces of all links

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
    auto path = PeerPath::Make(own, *peer, piece_bytes_, priority);
    if (path.ok()) {
      paths_.push_back(std::move(path).value());
    } else if (path.status().code() == Code::kOutOfMemory) {
      Log(LogLevel::kWarn, "GPU %d copies without the link of GPU %d: %s", own.ordinal(),
          peer->ordinal(), path.status().message().c_str());
    } else {
      return std::move(path).status();
    }
  }
  ends_.resize(1 + paths_.size());
  timed_.resize(ends_.size());
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

// The link that ends a piece first; one that was slow has one now and then, to tell whether it
// still is.
size_t PeerPaths::Soonest(int64_t bytes) {
  size_t best = 0;
  double soonest = 0.0;
  for (size_t link = 0; link < ends_.size(); ++link) {
    const double end = ends_[link] + static_cast<double>(bytes) / RateOf(link).Read();
    const bool probed = pieces_ - timed_[link] >= kProbedEvery;
    if (link == 0 || probed || end < soonest) {
      best = link;
      soonest = end;
      if (probed) break;
    }
  }
  ends_[best] = soonest;
  return best;
}

Result<PeerPath*> PeerPaths::Choose(int64_t bytes) {
  if (bytes * kLeastPart < piece_bytes_) return static_cast<PeerPath*>(nullptr);
  ++pieces_;
  const size_t link = Soonest(bytes);
  const double ahead = kAhead * static_cast<double>(piece_bytes_) / rate_.Read();
  const double least = *std::max_element(ends_.begin(), ends_.end()) - ahead;
  for (double& end : ends_) end = std::max(end - least, 0.0);
  if (pieces_ - timed_[link] >= kTimedEvery) {
    timed_[link] = pieces_;
    RateOf(link).Want();
  }
  if (link == 0) return static_cast<PeerPath*>(nullptr);
  if (follow_) {
    OOC_CUDA(driver_, cuEventRecord, mark_, stream_);
    for (const auto& path : paths_) OOC_TRY(path->Wait(mark_));
    follow_ = false;
  }
  return paths_[link - 1].get();
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
  const bool busy =
      std::any_of(paths_.begin(), paths_.end(), [](const auto& path) { return path->Busy(); });
  if (!busy) {
    OOC_CUDA(driver_, cuEventRecord, event, stream_);
    return {};
  }
  OOC_CUDA(driver_, cuEventRecord, mark_, stream_);
  OOC_CUDA(driver_, cuStreamWaitEvent, join_, mark_, 0);
  for (const auto& path : paths_) OOC_TRY(path->Precede(join_));
  OOC_CUDA(driver_, cuEventRecord, event, join_);
  return {};
}

Status PeerPaths::Synchronize() const {
  Status status;
  for (const auto& path : paths_) status.KeepFirst(path->Synchronize());
  status.KeepFirst(driver_.Check(driver_.cuStreamSynchronize(join_), "cuStreamSynchronize"));
  return status;
}

}  // namespace oocdnn::cuda
