// How a step becomes work on three streams. Which boxes move is decided by the schedule, how bytes
// move by the device; here is only the order.
#include "exec/tile_loop.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/guarded.hpp"
#include "base/watch.hpp"
#include "exec/operation.hpp"
#include "geom/own_rows.hpp"

namespace oocdnn {
namespace {

// The part of a transfer that is a piece of `part`; what lies around that, and is filled with
// zeros, goes with the pieces at its sides.
Transfer PieceOf(const Transfer& transfer, const Piece& part, const Piece& piece) {
  Transfer out = transfer;
  for (int d = 0; d < 6; ++d) {
    const int64_t origin = transfer.box.origin[d];
    if (piece.begin[d] > part.begin[d]) out.tile_begin[d] = piece.begin[d] - origin;
    if (piece.end[d] < part.end[d]) out.tile_end[d] = piece.end[d] - origin;
  }
  return out;
}

int64_t BytesOf(const Piece& part, DType dtype) {
  int64_t bytes = SizeOf(dtype);
  for (int d = 0; d < 6; ++d) bytes = Mul(bytes, std::max<int64_t>(part.end[d] - part.begin[d], 0));
  return bytes;
}

// What a call does with the operands of a link. What is inner has nobody outside.
Staging::Uses UsesOf(const Work& work, size_t link) {
  const Booking& booking = *work.nodes[link];
  Staging::Uses uses = Staging::UsesOf(booking.problem, booking.candidate);
  for (int i = 0; i < kOperands; ++i) uses[i].used = uses[i].used && !booking.inner[i];
  if (work.tiles == nullptr) return uses;
  const ConvShape tile = work.tiles->ShapeOf(link, false);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    uses[i].single = !Moves(booking.problem, operand, Axis::kN) || work.tiles->Steps() == 1;
    const Dims box = tile.DimsOf(operand, booking.problem.direction);
    const Dims whole = booking.problem.DimsOf(operand);
    for (int d = 0; d < 6; ++d) uses[i].box[d] = std::min(box[d], whole[d]);
  }
  return uses;
}

// The operands that other streams than what computes have to do with.
std::array<bool, kOperands> WaitsOf(const Booking& booking) {
  std::array<bool, kOperands> waits{};
  for (int i = 0; i < kOperands; ++i) {
    waits[i] = booking.problem.Uses(static_cast<Operand>(i)) && !booking.inner[i];
  }
  return waits;
}

// See RunArgs. Tiles of other directions share rows, whose sums have no blocks in common.
Spatial OriginOf(const Problem& problem, const Step& step) {
  Spatial origin{};
  if (problem.direction != Direction::kBackwardFilter) return origin;
  const Box& dy = step.operand[Index(Operand::kY)].box;
  for (int s = 0; s < 3; ++s) origin[s] = dy.origin[3 + s];
  return origin;
}

}  // namespace

// Waits for what is in flight where a progress callback ends the thread.
class TileLoop::Ending {
 public:
  explicit Ending(TileLoop& loop) : loop_(&loop) {}
  ~Ending() {
    if (loop_ == nullptr) return;
    static_cast<void>(Guarded([this] { return loop_->Quiesce({}); }));
  }
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  void Dismiss() { loop_ = nullptr; }

 private:
  TileLoop* loop_;
};

Status TileLoop::Init() {
  OOC_ASSIGN(fetch_, MakeStream(device_, "fetch"));
  OOC_ASSIGN(compute_, MakeStream(device_, "compute"));
  OOC_ASSIGN(drain_, MakeStream(device_, "drain"));
  std::array<bool, kOperands> most{};  // tables have theirs from the first call on that has one
  for (int i = 0; i < kOperands; ++i) most[i] = !IsTable(static_cast<Operand>(i));
  OOC_TRY(MakeGates(0, most));
  // The host waits for steps awake. Asleep it would leave its core cold: what Python does for a
  // call takes 57 us right after another call, and 166 us after 20 ms of sleep.
  for (OwnedEvent& event : stepped_) {
    OOC_ASSIGN(event, MakeEvent(device_));
  }
  OOC_ASSIGN(begun_, MakeEvent(device_));
  for (OwnedEvent& event : ended_) {
    OOC_ASSIGN(event, MakeEvent(device_));
  }
  return staging_.Init();
}

Status TileLoop::MakeGates(size_t link, const std::array<bool, kOperands>& waits) {
  while (gates_.size() <= link) gates_.emplace_back();
  for (auto* table : {&gates_[link].ready, &gates_[link].idle}) {
    for (size_t i = 0; i < kOperands; ++i) {
      for (OwnedEvent& event : (*table)[i]) {
        if (!waits[i] || event.get() != nullptr) continue;
        OOC_ASSIGN(event, MakeEvent(device_));
      }
    }
  }
  return {};
}

Event TileLoop::Ready(const Call& call, const Step& step, Operand operand) const {
  const int slot = step.operand[Index(operand)].slot;
  return gates_[call.link].ready[Index(operand)][static_cast<size_t>(slot)].get();
}

Event TileLoop::Idle(const Call& call, Operand operand, int slot) const {
  return gates_[call.link].idle[Index(operand)][static_cast<size_t>(slot)].get();
}

Status TileLoop::Follow(Stream caller) {
  OOC_TRY(device_.Record(begun_.get(), caller));
  for (const Stream stream : Streams()) OOC_TRY(device_.Wait(stream, begun_.get()));
  return {};
}

Status TileLoop::Precede(Stream stream) {
  for (size_t i = 0; i < ended_.size(); ++i) {
    OOC_TRY(device_.Record(ended_[i].get(), Streams()[i]));
    OOC_TRY(device_.Wait(stream, ended_[i].get()));
  }
  return {};
}

void* TileLoop::SlotOf(const Call& call, Operand operand, int slot) {
  return call.arena.At(call.booking.slot[Index(operand)][static_cast<size_t>(slot)]);
}

void* TileLoop::TileOf(const Call& call, const Step& step, Operand operand) {
  const OperandStep& mine = step.operand[Index(operand)];
  if (!call.booking.in_place[Index(operand)]) return SlotOf(call, operand, mine.slot);
  const TensorView& view = call.tensors[Index(operand)];
  int64_t before = 0;  // elements
  for (int d = 0; d < 6; ++d) before += mine.box.origin[d] * view.stride[d];
  return static_cast<char*>(view.data) + before * SizeOf(view.dtype);
}

Transfer TileLoop::TransferOf(const Call& call, const Step& step, Operand operand) {
  const OperandStep& mine = step.operand[Index(operand)];
  Transfer transfer;
  transfer.operand = operand;
  transfer.box = mine.box;
  transfer.tile_end = mine.box.extent;
  transfer.tile = TileOf(call, step, operand);
  transfer.layout = &call.booking.Of(step.index).layout[Index(operand)];
  transfer.tag = {step.number, operand, nullptr};
  return transfer;
}

Bounce TileLoop::BounceOf(const Call& call, size_t stream) {
  if (call.booking.bounce_bytes == 0) return {};
  return {call.arena.At(call.booking.bounce[stream]), call.booking.bounce_bytes};
}

Status TileLoop::Run(const Work& work, std::span<const OperandViews> tensors, const Arena& arena,
                     Slabs& slabs, const Progress& progress, RunStats* stats, Stream then) {
  Calls calls;
  for (size_t i = 0; i < work.nodes.size(); ++i) {
    calls.push_back({*work.nodes[i], tensors[i], arena, stats, then == nullptr, i});
  }
  *stats = RunStats{};
  const Watch watch;
  const double fetch = Busy(fetch_.get()), compute = Busy(compute_.get()),
               drain = Busy(drain_.get());
  std::vector<Staging::Link> links;
  for (const Call& call : calls) links.push_back({call.tensors, UsesOf(work, call.link)});
  Ending ending(*this);
  Status status = Guarded([&]() -> Status {
    for (const Call& call : calls) OOC_TRY(MakeGates(call.link, WaitsOf(call.booking)));
    OOC_TRY(staging_.Begin(links, slabs));
    if (behind_) {  // slots of that call may lie where this one's do
      for (const Stream stream : Streams()) OOC_TRY(Precede(stream));
    }
    OOC_TRY(Loop(work, calls, progress));
    return then != nullptr ? Precede(then) : Status();
  });
  ending.Dismiss();
  behind_ = status.ok() && then != nullptr;
  if (!behind_) OOC_TRY(Quiesce(std::move(status)));
  stats->seconds = watch.Seconds();
  // While work goes on it is an estimate, which may fall.
  stats->fetch_seconds = std::max(Busy(fetch_.get()) - fetch, 0.0);
  stats->compute_seconds = std::max(Busy(compute_.get()) - compute, 0.0);
  stats->drain_seconds = std::max(Busy(drain_.get()) - drain, 0.0);
  return {};
}

Status TileLoop::Loop(const Work& work, const Calls& calls, const Progress& progress) {
  const Call& call = calls.front();
  Walk walk(work);
  Feed feed(staging_, work);
  std::vector<Step> steps;
  const Watch watch;
  int64_t awaited = 0;  // all steps before have been computed
  while (walk.Next(&steps)) {
    const int64_t number = steps.front().number;
    const bool brief = watch.Seconds() < kShortStep * static_cast<double>(awaited);
    const int64_t known = number - (brief ? kMostAhead : kAhead);
    if (call.waits && known - awaited >= (brief ? kMostAtOnce : 0)) {
      OOC_TRY(device_.Synchronize(stepped_[static_cast<size_t>(known % kMostAhead)].get()));
      awaited = known + 1;
    }
    if (progress && !progress(number, walk.Steps())) {
      return Error(Code::kInterrupted, "the call was interrupted at tile %lld of %lld",
                   static_cast<long long>(number), static_cast<long long>(walk.Steps()));
    }
    OOC_TRY(feed.Advance());
    OOC_TRY(TakeStep(calls, steps, &feed));
    ++call.stats->tiles;
  }
  if (progress) progress(walk.Steps(), walk.Steps());
  return {};
}

Status TileLoop::TakeStep(const Calls& calls, const std::vector<Step>& steps, Feed* feed) {
  const ScopedBinding binding(device_);
  for (size_t i = 0; i < calls.size(); ++i) {
    OOC_TRY(TakeLink(calls, steps, i, feed));
    if (!calls[i].booking.relays) continue;
    OOC_TRY(Relay({calls[i], steps[i], Operand::kZ}, {calls[i + 1], steps[i + 1], Operand::kX}));
  }
  // Behind what the drain waits for, because waking the host takes the stream a while.
  const auto at = static_cast<size_t>(steps.front().number % kMostAhead);
  return device_.Record(stepped_[at].get(), compute_.get());
}

Status TileLoop::TakeLink(const Calls& calls, const std::vector<Step>& steps, size_t link,
                          Feed* feed) {
  const Call& call = calls[link];
  const Step& step = steps[link];
  OOC_TRY(Fetch(call, step, feed));
  OOC_TRY(TakeKept(call, step));
  const bool adds_x = call.booking.residual == kFromX;
  if (call.booking.copies) OOC_TRY(TakeResidual(calls, steps, link));
  if (adds_x && call.booking.copies) OOC_TRY(ReleaseX(calls, steps));
  OOC_TRY(Compute(call, step));
  if (adds_x && !call.booking.copies) OOC_TRY(ReleaseX(calls, steps));
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool leaves = call.booking.problem.Writes(operand) && step.operand[i].leave;
    if (leaves && call.booking.Crosses(operand)) OOC_TRY(Drain(call, step, operand));
  }
  return {};
}

// Its slot may be filled again only after this, and no more after the first link.
Status TileLoop::ReleaseX(const Calls& calls, const std::vector<Step>& steps) {
  const int slot = steps.front().operand[Index(Operand::kX)].slot;
  return device_.Record(Idle(calls.front(), Operand::kX, slot), compute_.get());
}

Status TileLoop::Fetch(const Call& call, const Step& step, Feed* feed) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool enters = call.booking.problem.Reads(operand) && step.operand[i].enter;
    if (enters && call.booking.Crosses(operand)) OOC_TRY(FetchOperand(call, step, operand, feed));
  }
  return {};
}

Status TileLoop::FetchOperand(const Call& call, const Step& step, Operand operand, Feed* feed) {
  const int i = Index(operand);
  const OperandStep& mine = step.operand[i];
  const TensorView& tensor = call.tensors[i];
  Transfer transfer = TransferOf(call, step, operand);
  if (call.booking.shared[i] != nullptr) ToShared(call, step, &transfer);
  OOC_TRY(device_.Wait(fetch_.get(), Idle(call, operand, mine.slot)));
  if (mine.from_slot >= 0) transfer.tile_begin[mine.roll_axis] = mine.kept;
  transfer.view = tensor;
  transfer.bounce = BounceOf(call, 0);
  const Piece part = FetchedPart(mine);
  if (staging_.Serves(LaneNumber(call.link, operand))) {
    OOC_TRY(FetchStaged(call, transfer, part, feed));
  } else {
    OOC_TRY(device_.Fetch(fetch_.get(), transfer));
  }
  if (tensor.location.tier != Tier::kDevice) call.stats->bytes_in += BytesOf(part, tensor.dtype);
  return device_.Record(Ready(call, step, operand), fetch_.get());
}

Status TileLoop::FetchStaged(const Call& call, const Transfer& whole, const Piece& part,
                             Feed* feed) {
  const size_t lane = LaneNumber(call.link, whole.operand);
  Cut cut = staging_.CutOf(lane, part);
  for (Piece piece; cut.Next(&piece);) {
    Transfer transfer = PieceOf(whole, part, piece);
    OOC_ASSIGN(transfer.view, staging_.Take(lane));
    OOC_TRY(device_.Fetch(fetch_.get(), transfer));
    OOC_TRY(staging_.Taken(lane, fetch_.get()));
    OOC_TRY(feed->Advance());
  }
  return {};
}

Status TileLoop::Compute(const Call& call, const Step& step) {
  const Problem& problem = call.booking.problem;
  const PreparedTiles& tiles = call.booking.Of(step.index);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const OperandStep& mine = step.operand[i];
    if (problem.Reads(operand) && mine.enter && !call.booking.inner[i]) {
      OOC_TRY(device_.Wait(compute_.get(), Ready(call, step, operand)));
    }
  }
  OOC_TRY(CopyShared(call, step, false));
  const OperandStep& dy = step.operand[Index(Operand::kY)];
  if (dy.enter && problem.restores()) {
    OOC_TRY(PoolBackward(call, step, TileOf(call, step, Operand::kY),
                         tiles.layout[Index(Operand::kY)], dy.box));
  }
  if (problem.prologue.any() && step.operand[Index(problem.source())].enter) {
    OOC_TRY(Normalize(call, step));
  }
  for (const PreparedPart& prepared : tiles.parts) OOC_TRY(RunPart(call, step, prepared));
  const bool complete = step.operand[Index(problem.sum())].leave;
  if (complete) OOC_TRY(Finish(call, step));
  if (problem.sums) OOC_TRY(SumUp(call, step, complete));
  OOC_TRY(CopyShared(call, step, true));
  return Leave(call, step);
}

// One engine's share of the step, behind what the others have enqueued.
Status TileLoop::RunPart(const Call& call, const Step& step, const PreparedPart& prepared) {
  const Part& part = prepared.part;
  const Operation& operation = OperationOf(part.direction);
  const OperandStep& sum = step.operand[Index(part.sum)];
  RunArgs args;
  args.tag = {step.number, part.sum, nullptr};
  args.accumulate = !sum.enter;
  args.origin = OriginOf(call.booking.problem, step);
  args.workspace = call.arena.At(call.booking.workspace);
  for (const Operand place : {Operand::kX, Operand::kW, Operand::kY, Operand::kBias}) {
    const Role role = operation.of(place);
    if (role != Role::kRead && role != Role::kSum) continue;
    args.tile[Index(place)] = TileOf(call, step, part.Of(place));
  }
  if (prepared.fuses && call.booking.problem.epilogue.bias) {
    args.tile[Index(Operand::kBias)] = TileOf(call, step, Operand::kBias);
  }
  if (prepared.own_dy) {
    void* const dy = call.arena.At(call.booking.own_dy);
    const bool counts_once = part.direction == Direction::kBackwardBias;
    const Box box = counts_once
                        ? OwnRowsOf(call.booking.problem, call.booking.candidate.tiling, step.index)
                        : step.operand[Index(Operand::kY)].box;
    OOC_TRY(PoolBackward(call, step, dy, prepared.executable->layout(Operand::kY), box));
    args.tile[Index(Operand::kY)] = dy;
  }
  if (sum.enter) OOC_TRY(AwaitDrain(call, step, part.sum));
  return device_.Run(compute_.get(), *prepared.executable, args);
}

// Before computing writes a tile: what its slot held has left.
Status TileLoop::AwaitDrain(const Call& call, const Step& step, Operand operand) {
  if (call.booking.inner[Index(operand)]) return {};
  return device_.Wait(compute_.get(), Idle(call, operand, step.operand[Index(operand)].slot));
}

Status TileLoop::Drain(const Call& call, const Step& step, Operand operand) {
  const int i = Index(operand);
  const OperandStep& mine = step.operand[i];
  const TensorView& tensor = call.tensors[i];
  Transfer transfer = TransferOf(call, step, operand);
  OOC_TRY(device_.Record(Ready(call, step, operand), compute_.get()));
  OOC_TRY(device_.Wait(drain_.get(), Ready(call, step, operand)));
  transfer.view = tensor;
  transfer.bounce = BounceOf(call, 1);
  if (staging_.Serves(LaneNumber(call.link, operand))) {
    OOC_TRY(DrainStaged(call, transfer));
  } else {
    OOC_TRY(device_.Drain(drain_.get(), transfer));
  }
  if (tensor.location.tier != Tier::kDevice) {
    call.stats->bytes_out += mine.box.ValidElements() * SizeOf(tensor.dtype);
  }
  return device_.Record(Idle(call, operand, mine.slot), drain_.get());
}

Status TileLoop::DrainStaged(const Call& call, const Transfer& whole) {
  const size_t lane = LaneNumber(call.link, whole.operand);
  const Piece part{whole.box.valid_begin, whole.box.valid_end};
  Cut cut = staging_.CutOf(lane, part);
  for (Piece piece; cut.Next(&piece);) {
    Transfer transfer = PieceOf(whole, part, piece);
    OOC_ASSIGN(transfer.view, staging_.Give(lane, piece));
    OOC_TRY(device_.Drain(drain_.get(), transfer));
    OOC_TRY(staging_.Given(lane, drain_.get()));
  }
  return {};
}

Status TileLoop::Quiesce(Status status) {
  behind_ = false;
  for (const Stream stream : Streams()) {
    if (stream == nullptr) continue;  // Init failed
    Status ended = device_.SynchronizeStream(stream);
    if (status.ok()) status = std::move(ended);
  }
  Status staged = staging_.End();
  return status.ok() ? std::move(staged) : std::move(status);
}

}  // namespace oocdnn
