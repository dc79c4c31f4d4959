// The tile loop. Walks the schedule of a booking and enqueues three stages, each on its own stream:
//
//   fetch    waits until the compute stage has read the previous tile of the slot, then fills the
//            slot, except for rows that an adjacent tile shares
//   compute  copies the shared rows, waits for the fetched slots, computes dy from dz if dy is no
//            operand, applies the prologue, runs the engine, finishes complete tiles, and adds them
//            to the statistics
//   drain    waits for finished tiles, and copies them to their place in the operand
//
// All operations, directions, placements and devices run here. In each step of a chain, the links
// run one after the other, and each reads the result of the previous one.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "exec/feed.hpp"
#include "memory/arena.hpp"

namespace oocdnn {

// Statistics of a run.
struct RunStats {
  int64_t tiles = 0, bytes_in = 0, bytes_out = 0;
  double seconds = 0.0, fetch_seconds = 0.0, compute_seconds = 0.0, drain_seconds = 0.0;

  // Adds the statistics of a later run.
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
  // `threads`: of staging, see Staging.
  explicit TileLoop(Device& device, int threads = 0) : device_(device), staging_(device, threads) {}
  // Creates the streams and events of all runs.
  Status Init();

  // Makes all later work wait for the work that is now in the caller's stream.
  Status Follow(Stream caller);
  // Waits until all enqueued work is done, including the work that it follows.
  Status Settle() { return Quiesce({}); }

  // Runs the work on the arena's block, with the tensors of each node, and returns when all work is
  // done. If `then` is a stream
  // of the caller's, Run returns when all work is enqueued, and that stream continues when it is
  // done; no operand may be staged then, and the times are those that the host saw. After a failure
  // all streams are idle, and no work of the call is in flight.
  Status Run(const Work& work, std::span<const OperandViews> tensors, const Arena& arena,
             Slabs& slabs, const Progress& progress, RunStats* stats, Stream then = nullptr);

 private:
  static constexpr int kMaxDepth = 4;
  // A call that returns when all work is done lets the host run this many steps ahead of the
  // device, so that an interrupt ends it within a tile or two and queues stay short. Short steps
  // allow more, because the host would not wake up in time.
  static constexpr int kAhead = 3, kMostAhead = 8;
  // A host that sleeps while it waits for the GPU takes as long as a short step to wake up. With
  // short steps it waits only at every fourth one, and is up to this many further steps ahead.
  static constexpr int kMostAtOnce = 3;
  static constexpr double kShortStep = 1e-3;  // seconds

  // One link of a call.
  struct Call {
    const Booking& booking;
    const OperandViews& tensors;
    const Arena& arena;
    RunStats* stats;
    bool waits;  // whether the host waits for steps far behind
    size_t link = 0;
  };
  using Calls = std::vector<Call>;
  // Events of each slot of a link's operands. ready: the slot holds the input of the next stage;
  // idle: all reads and writes of it are done.
  struct Gates {
    std::array<std::array<OwnedEvent, kMaxDepth>, kOperands> ready, idle;
  };

  // Creates the events of the operands that this link may wait for.
  Status MakeGates(size_t link, const std::array<bool, kOperands>& waits);
  [[nodiscard]] Event Ready(const Call& call, const Step& step, Operand operand) const;
  [[nodiscard]] Event Idle(const Call& call, Operand operand, int slot) const;
  Status Loop(const Work& work, const Calls& calls, const Progress& progress);
  // Advances `feed` by the operands of the step.
  Status Fetch(const Call& call, const Step& step, Feed* feed);
  Status FetchOperand(const Call& call, const Step& step, Operand operand, Feed* feed);
  // Transfers `part` of a staged operand over the wire, piece by piece.
  Status FetchStaged(const Call& call, const Transfer& whole, const Piece& part, Feed* feed);
  Status DrainStaged(const Call& call, const Transfer& whole);
  // Copies between the tiles of a shared tensor and the problem's own tiles: its inputs to them,
  // and its results (`writes`) from them.
  Status CopyShared(const Call& call, const Step& step, bool writes);
  // Marks the slots that the step has read as idle, or passes them on to other problems.
  Status Leave(const Call& call, const Step& step);
  // Copies rows shared with the previous tile.
  Status TakeKept(const Call& call, const Step& step);
  Status MoveKept(const Call& call, const Step& step, Operand operand);
  // Copies the shared rows of an inner x from the kept buffer, and those for the next tile into it.
  Status PassKept(const Call& call, const Step& step);
  Status Compute(const Call& call, const Step& step);
  Status RunPart(const Call& call, const Step& step, const PreparedPart& prepared);
  Status TakeStep(const Calls& calls, const std::vector<Step>& steps, Feed* feed);
  Status TakeLink(const Calls& calls, const std::vector<Step>& steps, size_t link, Feed* feed);
  // The tile of a link in one step.
  struct LinkTile {
    const Call& call;
    const Step& step;
    Operand operand;
  };
  // Copies a tile, or the part that `to` needs, into the layout of another tile.
  Status Relay(const LinkTile& from, const LinkTile& to);
  // Copies the residual of a link from the result of an earlier link, or from x.
  Status TakeResidual(const Calls& calls, const std::vector<Step>& steps, size_t link);
  // Marks x as idle after a later link than the first has read it.
  Status ReleaseX(const Calls& calls, const std::vector<Step>& steps);
  Status AwaitDrain(const Call& call, const Step& step, Operand operand);
  Status Finish(const Call& call, const Step& step);
  Status ClearBeyond(const Call& call, const Step& step);
  Status FinishInner(const Call& call, const Step& step, FinishArgs args);
  // Computes the step's tile of dy from dz and saved bits; `box` has its valid elements.
  Status PoolBackward(const Call& call, const Step& step, void* dy, const TileLayout& layout,
                      const Box& box);
  // Applies the prologue to the fetched part of the step's tile.
  Status Normalize(const Call& call, const Step& step);
  // Adds a complete tile to the statistics, which the first step sets to 0.
  Status SumUp(const Call& call, const Step& step, bool complete);
  Status PutPooled(const Call& call, const Step& step, FinishArgs* args);
  Status Drain(const Call& call, const Step& step, Operand operand);
  class Ending;
  Status Quiesce(Status status);
  // Makes a stream wait for all enqueued work.
  Status Precede(Stream stream);
  [[nodiscard]] std::array<Stream, 3> Streams() const {
    return {fetch_.get(), compute_.get(), drain_.get()};
  }
  // The address of the step's tile of the operand: in its slot, or in the caller's memory.
  [[nodiscard]] static void* TileOf(const Call& call, const Step& step, Operand operand);
  [[nodiscard]] static void* SlotOf(const Call& call, Operand operand, int slot);
  // The transfer of the whole tile of the step.
  [[nodiscard]] static Transfer TransferOf(const Call& call, const Step& step, Operand operand);
  // Redirects a transfer to the shared tile, which holds the whole tensor without padding.
  static void ToShared(const Call& call, const Step& step, Transfer* transfer);
  [[nodiscard]] static Bounce BounceOf(const Call& call, size_t stream);
  [[nodiscard]] double Busy(Stream stream) const { return device_.BusySeconds(stream); }

  Device& device_;
  Staging staging_;
  OwnedStream fetch_, compute_, drain_;
  std::vector<Gates> gates_;  // by link
  std::array<OwnedEvent, kMostAhead> stepped_;
  OwnedEvent begun_;                 // the caller's stream has reached this call
  std::array<OwnedEvent, 3> ended_;  // each stream has reached the end of a call
  bool behind_ = false;              // a call that was enqueued may not be done
};

}  // namespace oocdnn
