// Staging: operands that the device's copies do not reach (pageable memory, files) pass through
// slabs of host memory. Readers fill slabs ahead of the device, writers empty finished ones. Both
// wait for the device in threads of their own; all else that concerns the device stays in the
// thread of the tile loop.
//
// What is in memory passes in pieces so small that all slabs together stay in the processor's
// caches, where those are large: the wire then reads what a core has just written there, and memory
// is read or written once. A file's boxes pass as they are, for few and large reads and writes.
#pragma once

#include <array>
#include <vector>

#include "exec/copy_team.hpp"
#include "exec/cut.hpp"
#include "exec/file_io.hpp"
#include "exec/host_worker.hpp"
#include "memory/owners.hpp"
#include "memory/slabs.hpp"
#include "model/plan.hpp"

namespace oocdnn {

// The number of an operand's lane, of a link among those of a call.
constexpr size_t LaneNumber(size_t link, Operand operand) {
  return link * kOperands + static_cast<size_t>(Index(operand));
}

class Staging {
 public:
  // `threads` copy pageable memory; 0: as many as fill a wire, where the process has them.
  Staging(Device& device, int threads);
  Status Init();

  // What a call does with an operand: whether it uses it, whether it writes it, whether there is
  // only one box of it, and the extents of the largest.
  struct Use {
    bool used = false, written = false, single = false;
    Dims box{};
  };
  using Uses = std::array<Use, kOperands>;
  // A link of a call: its operands, and what the call does with them.
  struct Link {
    const OperandViews& tensors;
    Uses uses;
  };
  static Uses UsesOf(const Problem& problem, const Candidate& plan);
  // The host memory that a call stages operands in which all are in pageable memory, where the
  // device does not reach that and `cap` bytes are allowed; but for those that it pins.
  static int64_t PageableBytes(const Problem& problem, const Candidate& plan, int64_t cap);

  // Prepares for one call: a lane of slabs, each as large as a piece, for every used operand that
  // the device does not reach.
  Status Begin(const std::vector<Link>& links, Slabs& slabs);
  // Whether the operand of that number has a lane: its boxes then go, piece by piece, through Post
  // to Given.
  [[nodiscard]] bool Serves(size_t number) const { return !lanes_[number].slab.empty(); }

  // The pieces in which a part of an operand passes.
  [[nodiscard]] Cut CutOf(size_t number, const Piece& part) const;

  // Whether an input has a slab into which nothing is posted that is not taken.
  [[nodiscard]] bool HasRoom(size_t number) const;
  // Starts reading a piece of an input into that slab; returns at once.
  Status Post(size_t number, const Piece& piece);
  // The view from which the oldest posted piece is fetched. Waits for the reader.
  Result<TensorView> Take(size_t number);
  // The fetch of that piece has been enqueued on `stream`: the slab is free when it has run.
  Status Taken(size_t number, Stream stream);

  // The view into which a piece of the output is to be drained. Waits for the writer to have
  // emptied the oldest slab.
  Result<TensorView> Give(size_t number, const Piece& piece);
  // That drain has been enqueued on `stream`: the writer goes on from there.
  Status Given(size_t number, Stream stream);
  // Everything is read, drained and written, or the first error.
  Status End();

 private:
  static constexpr size_t kReadFile = 2;   // slabs: one being filled, one being fetched
  static constexpr size_t kWriteFile = 3;  // one being drained, one being emptied, one between
  // Of memory: so many that whoever wakes up late keeps nobody waiting, and more of small ones.
  static constexpr int64_t kSlabs = 8, kMostSlabs = 16;
  // Two at work on one lane, so that one's last copies and the other's first go side by side.
  using Workers = std::array<HostWorker, 2>;
  struct Slab {
    void* memory = nullptr;
    Piece piece;
    HostWorker::Ticket ticket = 0;
    size_t worker = 0;
  };
  struct Lane {
    TensorView tensor;
    Packing packing;
    Dims most{};  // extents of the largest piece
    std::vector<Slab> slab;
    int64_t head = 0, tail = 0;  // pieces posted (given), pieces taken
    Slab& at(int64_t piece) { return slab[static_cast<size_t>(piece) % slab.size()]; }
    [[nodiscard]] FileTensor file() const {
      return {tensor.location.fd, tensor.location.offset, packing};
    }
  };

  using Lanes = std::vector<Lane>;
  // An operand that may want a lane.
  struct Need {
    TensorView tensor;
    Use use;
    bool staged = false;
  };

  // The lanes of the operands that are to be staged; the others' have no slabs.
  [[nodiscard]] static Lanes LanesOf(const std::vector<Need>& needs, int64_t cap);
  // The bytes of each slab, lane by lane.
  [[nodiscard]] static std::vector<int64_t> SizesOf(const Lanes& lanes);
  // The lane of an operand whose pieces in memory are at most so large.
  [[nodiscard]] static Lane LaneOf(const TensorView& tensor, const Use& use, int64_t piece_bytes);
  // Hands a job to one of the workers, and notes that in the slab.
  static Status Submit(Workers* workers, const Lane& lane, const HostWorker::Job& job, Slab* slab);

  [[nodiscard]] bool Reaches(const TensorView& tensor) const;
  [[nodiscard]] TensorView ViewOf(const Lane& lane, const Slab& slab) const;
  [[nodiscard]] Event EventOf(size_t number, int64_t piece) const;
  // Has events for the slabs of all lanes.
  Status MakeEvents();

  Device& device_;
  CopyTeam team_;
  Workers readers_, writers_;
  Lanes lanes_;
  Location slabs_location_;
  bool cached_ = false;  // all slabs of the call together stay in the processor's caches
  // Fires when the device is done with a slab.
  std::vector<std::array<OwnedEvent, kMostSlabs>> event_;
};

}  // namespace oocdnn
