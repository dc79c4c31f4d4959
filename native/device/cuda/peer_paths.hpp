// The links over which a stream's copies between host memory and its GPU go: the GPU's own one, and
// those of peers.
//
// A piece goes over the link that is expected to end it first, by measured rates. A link that other
// programs use gets fewer pieces, and a link that they keep busy next to none.
#pragma once

#include <memory>
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
  // One entry for each link, the GPU's own link first.
  std::vector<double> ends_;    // seconds until the pieces of the link have been copied
  std::vector<int64_t> timed_;  // number of the latest piece that was timed
  int64_t pieces_ = 0;
  bool follow_ = true;  // the paths have to wait for the stream
};

}  // namespace oocdnn::cuda
