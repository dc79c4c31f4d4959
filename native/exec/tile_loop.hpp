// The one tile loop. Walks a booking's schedule and keeps three streams busy:
//
//   fetch    waits until the compute that last read a slot is done, then fills the slot, but for
//            rows that a neighbouring tile has
//   compute  moves those, waits for the fetched slots, restores dy where that is not fetched,
//            normalises what was, runs the engine, finishes complete tiles, sums them up
//   drain    waits for what has been finished, then copies it to where it belongs
//
// Every operation, direction, placement and device goes through here. Of a chain the links of a
// tile take their turns in each step: what one has finished is what the next one reads.
#pragma once

#include <functional>
#include <vector>

#include "exec/chain_booking.hpp"
#include "exec/feed.hpp"
#include "exec/gradient_booking.hpp"
#include "memory/arena.hpp"

namespace oocdnn {

// What a run did.
struct RunStats {
  int64_t tiles = 0, bytes_in = 0, bytes_out = 0;
  double seconds = 0.0, fetch_seconds = 0.0, compute_seconds = 0.0, drain_seconds = 0.0;

  // Of a run that came after this one.
  void Add(const RunStats& next) {
    tiles += next.tiles;
    bytes_in += next.bytes_in;
    bytes_out += next.bytes_out;
    seconds += next.seconds;
    fetch_seconds += next.fetch_seconds;
    compute_seconds += next.compute_seconds;
    drain_seconds += next.drain_seconds;
  }
};

// Called between steps in the calling thread; false ends the run with kInterrupted.
using Progress = std::function<bool(int64_t done, int64_t total)>;

class TileLoop {
 public:
  // `threads` of staging, see there.
  explicit TileLoop(Device& device, int threads = 0) : device_(device), staging_(device, threads) {}
  // Creates the streams and events that all runs share.
  Status Init();

  // What is enqueued from now on waits for what the caller's stream holds now.
  Status Follow(Stream caller);
  // Waits until all that has been enqueued is done, what it follows too.
  Status Settle() { return Quiesce({}); }

  // Runs the booking on the arena's block. Returns when all is done; where `then` is a stream of
  // the caller's, when all has been enqueued, and that stream goes on when it is done (no operand
  // may be staged then; the times count what the host saw). After a failure every stream is idle
  // and nothing of the call is still in flight.
  Status Run(const Booking& booking, const HostTensors& tensors, const Arena& arena, Slabs& slabs,
             const Progress& progress, RunStats* stats, Stream then = nullptr);
  // The same with a chain, of whose links each has its own tensors.
  Status Run(const ChainBooking& booking, const std::vector<HostTensors>& tensors,
             const Arena& arena, Slabs& slabs, const Progress& progress, RunStats* stats,
             Stream then = nullptr);
  // The same with the problems of a GradientChain.
  Status Run(const GradientBooking& booking, const std::vector<HostTensors>& tensors,
             const Arena& arena, Slabs& slabs, const Progress& progress, RunStats* stats,
             Stream then = nullptr);

 private:
  static constexpr int kMaxDepth = 4;
  // Where a call returns when all is done, the host waits for the step so far back, so that an
  // interrupt ends it within a tile or two and queues stay short: further back where steps are so
  // short that the host's own way back to work would be in the way.
  static constexpr int kAhead = 3, kMostAhead = 8;
  // A program may have its GPU's host sleep, and waking up takes as long as a brief step: of those
  // it waits only at each fourth, and is up to this many further ahead.
  static constexpr int kMostAtOnce = 3;
  static constexpr double kShortStep = 1e-3;  // seconds

  // One link of a call.
  struct Call {
    const Booking& booking;
    const HostTensors& tensors;
    const Arena& arena;
    RunStats* stats;
    bool waits;  // the host, for steps far behind
    size_t link = 0;
  };
  using Calls = std::vector<Call>;
  // Of each slot of a link's operands. ready: it holds what the next engine needs; idle: nobody
  // reads or writes it any more.
  struct Gates {
    std::array<std::array<OwnedEvent, kMaxDepth>, kOperands> ready, idle;
  };

  Status RunAll(const Work& work, const Calls& calls, Slabs& slabs, const Progress& progress,
                Stream then);
  // Has gates for the operands that a link of that number may wait for.
  Status MakeGates(size_t link, const std::array<bool, kOperands>& waits);
  [[nodiscard]] Event Ready(const Call& call, const Step& step, Operand operand) const;
  [[nodiscard]] Event Idle(const Call& call, Operand operand, int slot) const;
  Status Loop(const Work& work, const Calls& calls, const Progress& progress);
  // `feed` goes on with what the step takes.
  Status Fetch(const Call& call, const Step& step, Feed* feed);
  Status FetchOperand(const Call& call, const Step& step, Operand operand, Feed* feed);
  // A transfer of a staged operand, of which `part` crosses the wire, piece by piece.
  Status FetchStaged(const Call& call, const Transfer& whole, const Piece& part, Feed* feed);
  Status DrainStaged(const Call& call, const Transfer& whole);
  // Copies between the tiles of a shared tensor and the problem's own: to these what it reads, and
  // from them what it writes.
  Status CopyShared(const Call& call, const Step& step, bool writes);
  // What the step has read may be filled again, or is left to others.
  Status Leave(const Call& call, const Step& step);
  // What the tile before has of this one's.
  Status TakeKept(const Call& call, const Step& step);
  Status MoveKept(const Call& call, const Step& step, Operand operand);
  // Of an inner x from where it is kept, and to there what the next tile has of it.
  Status PassKept(const Call& call, const Step& step);
  Status Compute(const Call& call, const Step& step);
  Status RunPart(const Call& call, const Step& step, const PreparedPart& prepared);
  Status TakeStep(const Calls& calls, const std::vector<Step>& steps, Feed* feed);
  Status TakeLink(const Calls& calls, const std::vector<Step>& steps, size_t link, Feed* feed);
  // A link's tile in one step.
  struct LinkTile {
    const Call& call;
    const Step& step;
    Operand operand;
  };
  // Copies a tile to a part of it, or all of it, in the layout of another one.
  Status Relay(const LinkTile& from, const LinkTile& to);
  // Copies the residual of a link from what an earlier one has written, or from x.
  Status TakeResidual(const Calls& calls, const std::vector<Step>& steps, size_t link);
  // x of this step has been read by a later link than the first.
  Status ReleaseX(const Calls& calls, const std::vector<Step>& steps);
  Status AwaitDrain(const Call& call, const Step& step, Operand operand);
  Status Finish(const Call& call, const Step& step);
  Status ClearBeyond(const Call& call, const Step& step);
  Status FinishInner(const Call& call, const Step& step, FinishArgs args);
  // Makes the step's tile of dy, or of what is valid of it in `box`.
  Status PoolBackward(const Call& call, const Step& step, void* dy, const TileLayout& layout,
                      const Box& box);
  // Takes what was fetched of the step's tile through the prologue.
  Status Normalize(const Call& call, const Step& step);
  // Adds what a complete tile has to the sums, which begin at 0 with the first step.
  Status SumUp(const Call& call, const Step& step, bool complete);
  Status PutPooled(const Call& call, const Step& step, FinishArgs* args);
  Status Drain(const Call& call, const Step& step, Operand operand);
  class Ending;
  Status Quiesce(Status status);
  // Makes a stream wait for all that has been enqueued.
  Status Precede(Stream stream);
  [[nodiscard]] std::array<Stream, 3> Streams() const {
    return {fetch_.get(), compute_.get(), drain_.get()};
  }
  // Where the step's tile of the operand begins: in its slot, or in the caller's own memory.
  [[nodiscard]] static void* TileOf(const Call& call, const Step& step, Operand operand);
  [[nodiscard]] static void* SlotOf(const Call& call, Operand operand, int slot);
  // Of the step's tile, all of it.
  [[nodiscard]] static Transfer TransferOf(const Call& call, const Step& step, Operand operand);
  // Has a transfer end in the shared tile, which has neither padding nor less than the tensor.
  static void ToShared(const Call& call, const Step& step, Transfer* transfer);
  [[nodiscard]] static Bounce BounceOf(const Call& call, size_t stream);
  [[nodiscard]] double Busy(Stream stream) const { return device_.BusySeconds(stream); }

  Device& device_;
  Staging staging_;
  OwnedStream fetch_, compute_, drain_;
  std::vector<Gates> gates_;  // by link
  std::array<OwnedEvent, kMostAhead> stepped_;
  OwnedEvent begun_;                 // the caller's stream has come to this call
  std::array<OwnedEvent, 3> ended_;  // each stream has come to the end of a call
  bool behind_ = false;              // a call that was enqueued may not be done
};

}  // namespace oocdnn
