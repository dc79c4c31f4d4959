// The links over which a stream's copies between host memory and its GPU go: the GPU's own one, and
// those of peers.
//
// A piece goes over the link that ends it first, by the rates that the links are seen to have: one
// that others use gets less, one that is in use by others alone next to nothing.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "device/cuda/peer_path.hpp"

namespace oocdnn::cuda {

// The peers whose links a GPU uses, and the bytes of the largest piece.
struct BorrowedLinks {
  std::vector<const PrimaryContext*> peers;
  int64_t piece_bytes = 0;
};

// Calls need the GPU's context current.
class PeerPaths {
 public:
  // The paths follow what is on the stream so far. A peer that has no memory left is done without,
  // with a warning.
  static Result<std::unique_ptr<PeerPaths>> Make(const PrimaryContext& own,
                                                 const BorrowedLinks& links, CUstream stream,
                                                 int priority);
  ~PeerPaths();
  PeerPaths(const PeerPaths&) = delete;
  PeerPaths& operator=(const PeerPaths&) = delete;

  [[nodiscard]] int64_t piece_bytes() const { return piece_bytes_; }
  // What the stream copies from here on goes in this direction. Where that is another one than
  // before, it is behind what was copied so far.
  Status Turn(Bound bound);
  // The path of the next piece; null: the GPU's own link.
  Result<PeerPath*> Choose(int64_t bytes);
  // A piece over the GPU's own link, on the stream or ahead of it: enqueue().
  template <class Enqueue>
  Status OverOwnLink(CUstream stream, int64_t bytes, const Enqueue& enqueue) {
    return rate_.Timed(stream, bytes, enqueue);
  }

  // Other work of the stream is to be enqueued: it is behind the copies so far, and those from then
  // on are behind it.
  Status Settle();
  Status Wait(CUevent event) const;  // beside the stream's own
  Status Record(CUevent event);      // behind the stream's work and all copies so far
  Status Synchronize() const;

 private:
  PeerPaths(const PrimaryContext& own, int64_t piece_bytes, CUstream stream)
      : driver_(own.driver()), piece_bytes_(piece_bytes), stream_(stream), rate_(own.driver()) {}
  LinkRate& RateOf(size_t link) { return link == 0 ? rate_ : paths_[link - 1]->rate(); }
  size_t Soonest(int64_t bytes);
  Status Prepare(const PrimaryContext& own, const std::vector<const PrimaryContext*>& peers,
                 int priority);

  const Driver& driver_;
  const int64_t piece_bytes_;
  const CUstream stream_;
  CUstream join_ = nullptr;  // comes after the stream and the paths
  CUevent mark_ = nullptr;   // where the stream is
  std::vector<std::unique_ptr<PeerPath>> paths_;
  LinkRate rate_;  // of the GPU's own link
  // Of each link, the own one's first: when it ends its pieces, in seconds, and the number of the
  // latest piece that was timed.
  std::vector<double> ends_;
  std::vector<int64_t> timed_;
  int64_t pieces_ = 0;
  std::optional<Bound> bound_;
  bool follow_ = true;  // the paths have to wait for the stream
};

}  // namespace oocdnn::cuda
