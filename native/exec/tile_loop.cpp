// How a step becomes work on three streams. Which boxes move is decided by the schedule, how bytes
// move by the device; here is only the order.
#include "exec/tile_loop.hpp"

#include <algorithm>
#include <chrono>

#include "base/checked.hpp"
#include "base/guarded.hpp"
#include "exec/operation.hpp"

namespace oocdnn {
namespace {

Transfer TransferOf(const Booking& booking, const Step& step, Operand operand, void* tile) {
  const OperandStep& mine = step.operand[Index(operand)];
  Transfer transfer;
  transfer.operand = operand;
  transfer.box = mine.box;
  transfer.tile_end = mine.box.extent;
  transfer.tile = tile;
  transfer.layout = &booking.Of(step.index).layout[Index(operand)];
  transfer.tag = {step.number, operand, nullptr};
  return transfer;
}

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

}  // namespace

Status TileLoop::Init() {
  OOC_ASSIGN(fetch_, MakeStream(device_, "fetch"));
  OOC_ASSIGN(compute_, MakeStream(device_, "compute"));
  OOC_ASSIGN(drain_, MakeStream(device_, "drain"));
  for (auto* table : {&ready_, &idle_}) {
    for (auto& row : *table) {
      for (OwnedEvent& event : row) {
        OOC_ASSIGN(event, MakeEvent(device_));
      }
    }
  }
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
  const TensorView& view = call.tensors[Index(operand)].view;
  int64_t before = 0;  // elements
  for (int d = 0; d < 6; ++d) before += mine.box.origin[d] * view.stride[d];
  return static_cast<char*>(view.data) + before * SizeOf(view.dtype);
}

Bounce TileLoop::BounceOf(const Call& call, size_t stream) {
  if (call.booking.bounce_bytes == 0) return {};
  return {call.arena.At(call.booking.bounce[stream]), call.booking.bounce_bytes};
}

Status TileLoop::Run(const Booking& booking, const HostTensors& tensors, const Arena& arena,
                     Slabs& slabs, const Progress& progress, RunStats* stats, Stream then) {
  *stats = RunStats{};
  const auto start = std::chrono::steady_clock::now();
  const double fetch = Busy(fetch_.get()), compute = Busy(compute_.get()),
               drain = Busy(drain_.get());
  const Staging::Uses uses = Staging::UsesOf(booking.problem, booking.candidate);
  const Call call{booking, tensors, arena, stats, then == nullptr};
  Status status = Guarded([&]() -> Status {
    OOC_TRY(staging_.Begin(tensors, uses, slabs));
    if (behind_) {  // slots of that call may lie where this one's do
      for (const Stream stream : Streams()) OOC_TRY(Precede(stream));
    }
    OOC_TRY(Loop(call, progress));
    return then != nullptr ? Precede(then) : Status();
  });
  behind_ = status.ok() && then != nullptr;
  if (!behind_) OOC_TRY(Quiesce(std::move(status)));
  stats->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  // While work goes on it is an estimate, which may fall.
  stats->fetch_seconds = std::max(Busy(fetch_.get()) - fetch, 0.0);
  stats->compute_seconds = std::max(Busy(compute_.get()) - compute, 0.0);
  stats->drain_seconds = std::max(Busy(drain_.get()) - drain, 0.0);
  return {};
}

Status TileLoop::Loop(const Call& call, const Progress& progress) {
  const Problem& problem = call.booking.problem;
  const Candidate& plan = call.booking.candidate;
  Schedule schedule(problem, plan.tiling, plan.order, plan.depths);
  Feed feed(staging_, problem, plan);
  Step step;
  const auto start = std::chrono::steady_clock::now();
  int64_t awaited = 0;  // all steps before have been computed
  while (schedule.Next(&step)) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    const bool brief = passed.count() < kShortStep * static_cast<double>(awaited);
    const int64_t known = step.number - (brief ? kMostAhead : kAhead);
    if (call.waits && known - awaited >= (brief ? kMostAtOnce : 0)) {
      OOC_TRY(device_.Synchronize(stepped_[static_cast<size_t>(known % kMostAhead)].get()));
      awaited = known + 1;
    }
    if (progress && !progress(step.number, schedule.Steps())) {
      return Error(Code::kInterrupted, "the call was interrupted at tile %lld of %lld",
                   static_cast<long long>(step.number), static_cast<long long>(schedule.Steps()));
    }
    OOC_TRY(feed.Advance());
    OOC_TRY(TakeStep(call, step, &feed));
    ++call.stats->tiles;
  }
  if (progress) progress(schedule.Steps(), schedule.Steps());
  return {};
}

Status TileLoop::TakeStep(const Call& call, const Step& step, Feed* feed) {
  const Bound bound(device_);
  OOC_TRY(Fetch(call, step, feed));
  OOC_TRY(Compute(call, step));
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const bool leaves = call.booking.problem.Writes(operand) && step.operand[i].leave;
    if (leaves && !call.booking.in_place[i]) OOC_TRY(Drain(call, step, operand));
  }
  // Behind what the drain waits for, because waking the host takes the stream a while.
  return device_.Record(stepped_[static_cast<size_t>(step.number % kMostAhead)].get(),
                        compute_.get());
}

Status TileLoop::Fetch(const Call& call, const Step& step, Feed* feed) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (call.booking.problem.Reads(operand) && step.operand[i].enter && !call.booking.in_place[i]) {
      OOC_TRY(FetchOperand(call, step, operand, feed));
    }
  }
  return {};
}

Status TileLoop::FetchOperand(const Call& call, const Step& step, Operand operand, Feed* feed) {
  const int i = Index(operand);
  const OperandStep& mine = step.operand[i];
  const HostTensor& tensor = call.tensors[i];
  const auto slot = static_cast<size_t>(mine.slot);
  Transfer transfer = TransferOf(call.booking, step, operand, TileOf(call, step, operand));
  OOC_TRY(device_.Wait(fetch_.get(), idle_[i][slot].get()));
  if (mine.from_slot >= 0) transfer.tile_begin[mine.roll_axis] = mine.kept;
  transfer.view = tensor.view;
  transfer.bounce = BounceOf(call, 0);
  const Piece part = FetchedPart(mine);
  if (staging_.Serves(operand)) {
    OOC_TRY(FetchStaged(transfer, part, feed));
  } else {
    OOC_TRY(device_.Fetch(fetch_.get(), transfer));
  }
  if (tensor.tier != Tier::kDevice) call.stats->bytes_in += BytesOf(part, tensor.view.dtype);
  return device_.Record(ready_[i][slot].get(), fetch_.get());
}

Status TileLoop::FetchStaged(const Transfer& whole, const Piece& part, Feed* feed) {
  Cut cut = staging_.CutOf(whole.operand, part);
  for (Piece piece; cut.Next(&piece);) {
    Transfer transfer = PieceOf(whole, part, piece);
    OOC_ASSIGN(transfer.view, staging_.Take(whole.operand));
    OOC_TRY(device_.Fetch(fetch_.get(), transfer));
    OOC_TRY(staging_.Taken(whole.operand, fetch_.get()));
    OOC_TRY(feed->Advance());
  }
  return {};
}

// Rows kept from a neighbour's tile. On the stream that computes, so that no copy over the wire
// waits for the move; the slot that they come from is filled again only after it.
Status TileLoop::MoveKept(const Call& call, const Step& step, Operand operand) {
  const int i = Index(operand);
  const OperandStep& mine = step.operand[i];
  TileMove move;
  move.from = SlotOf(call, operand, mine.from_slot);
  move.to = SlotOf(call, operand, mine.slot);
  move.from_begin[mine.roll_axis] = mine.from_row;
  move.extent = mine.box.extent;
  move.extent[mine.roll_axis] = mine.kept;
  move.operand = operand;
  move.layout = &call.booking.Of(step.index).layout[i];
  move.tag = {step.number, operand, nullptr};
  OOC_TRY(device_.Move(compute_.get(), move));
  return device_.Record(idle_[i][static_cast<size_t>(mine.from_slot)].get(), compute_.get());
}

Status TileLoop::Compute(const Call& call, const Step& step) {
  const Problem& problem = call.booking.problem;
  const Operation& operation = OperationOf(problem.direction);
  const OperandStep& sum = step.operand[Index(problem.sum())];
  RunArgs args;
  args.tag = {step.number, problem.sum(), nullptr};
  args.accumulate = !sum.enter;
  args.workspace = call.arena.At(call.booking.workspace);
  for (int i = 0; i < kOperands; ++i) {
    const OperandStep& mine = step.operand[i];
    if (mine.enter && mine.from_slot >= 0 && !call.booking.in_place[i]) {
      OOC_TRY(MoveKept(call, step, static_cast<Operand>(i)));
    }
  }
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Uses(operand)) continue;
    const OperandStep& mine = step.operand[i];
    const auto slot = static_cast<size_t>(mine.slot);
    const Role role = operation.of(operand);
    if (problem.Reads(operand) && mine.enter) {
      OOC_TRY(device_.Wait(compute_.get(), ready_[i][slot].get()));
    }
    if (role == Role::kRead || role == Role::kSum) args.tile[i] = TileOf(call, step, operand);
  }
  if (sum.enter) OOC_TRY(AwaitDrain(step, problem.sum()));
  const bool fresh = step.operand[Index(Operand::kY)].enter;
  if (fresh && problem.restores()) OOC_TRY(Restore(call, step));
  OOC_TRY(device_.Run(compute_.get(), *call.booking.Of(step.index).executable, args));
  if (sum.leave && problem.NeedsFinish()) OOC_TRY(Finish(call, step));
  for (int i = 0; i < kOperands; ++i) {
    if (!problem.Reads(static_cast<Operand>(i))) continue;
    const auto slot = static_cast<size_t>(step.operand[i].slot);
    OOC_TRY(device_.Record(idle_[i][slot].get(), compute_.get()));
  }
  return {};
}

// Before computing writes a tile: what its slot held has left.
Status TileLoop::AwaitDrain(const Step& step, Operand operand) {
  const auto slot = static_cast<size_t>(step.operand[Index(operand)].slot);
  return device_.Wait(compute_.get(), idle_[Index(operand)][slot].get());
}

// What the finishing pass writes beside the sum's own tile.
Status TileLoop::PutMade(const Call& call, const Step& step, FinishArgs* args) {
  const Problem& problem = call.booking.problem;
  const auto made = [&](Operand operand, MadeTile* tile) -> Status {
    if (!problem.Writes(operand)) return {};
    tile->data = TileOf(call, step, operand);
    tile->layout = &call.booking.Of(step.index).layout[Index(operand)];
    return AwaitDrain(step, operand);
  };
  OOC_TRY(made(Operand::kZ, &args->made.z));
  OOC_TRY(made(Operand::kSaved, &args->made.saved));
  args->made.pool = problem.pool;
  args->made.saving = problem.saving();
  args->made.extent = problem.shape.out;
  for (int s = 0; s < 3; ++s) {
    args->made.y_origin[s] = step.operand[Index(Operand::kY)].box.origin[3 + s];
    args->made.z_origin[s] = step.operand[Index(Operand::kZ)].box.origin[3 + s];
  }
  return {};
}

Status TileLoop::Restore(const Call& call, const Step& step) {
  const Problem& problem = call.booking.problem;
  const auto tile = [&](Operand operand) -> MadeTile {
    if (!problem.Uses(operand)) return {};
    return {TileOf(call, step, operand), &call.booking.Of(step.index).layout[Index(operand)]};
  };
  RestoreArgs args;
  args.dy = TileOf(call, step, Operand::kY);
  args.layout = &call.booking.Of(step.index).layout[Index(Operand::kY)];
  args.box = step.operand[Index(Operand::kY)].box;
  args.z = tile(Operand::kZ);
  args.saved = tile(Operand::kSaved);
  args.pool = problem.pool;
  args.saving = problem.saving();
  args.extent = problem.shape.out;
  for (int s = 0; s < 3; ++s) {
    args.z_origin[s] = step.operand[Index(Operand::kZ)].box.origin[3 + s];
    const int64_t begin = step.operand[Index(Operand::kSaved)].box.origin[3 + s];
    // Bytes along W; they hold whole units.
    args.saved_origin[s] = s == 2 ? args.saving.ElementAt(begin) : begin;
  }
  args.tag = {step.number, Operand::kY, nullptr};
  return device_.Restore(compute_.get(), args);
}

Status TileLoop::Finish(const Call& call, const Step& step) {
  const Problem& problem = call.booking.problem;
  const auto tile = [&](Operand operand) -> const void* {
    return problem.Reads(operand) ? TileOf(call, step, operand) : nullptr;
  };
  FinishArgs args;
  args.operand = problem.sum();
  args.out = TileOf(call, step, problem.sum());
  args.layout = &call.booking.Of(step.index).layout[Index(problem.sum())];
  args.old = tile(Operand::kOld);
  args.residual = tile(Operand::kResidual);
  args.bias = tile(Operand::kBias);
  args.scale = tile(Operand::kScale);
  args.alpha = problem.alpha;
  args.beta = problem.beta;
  args.epilogue = problem.epilogue;
  args.tag = {step.number, problem.sum(), nullptr};
  OOC_TRY(PutMade(call, step, &args));
  return device_.Finish(compute_.get(), args);
}

Status TileLoop::Drain(const Call& call, const Step& step, Operand operand) {
  const int i = Index(operand);
  const OperandStep& mine = step.operand[i];
  const HostTensor& tensor = call.tensors[i];
  const auto slot = static_cast<size_t>(mine.slot);
  Transfer transfer = TransferOf(call.booking, step, operand, TileOf(call, step, operand));
  OOC_TRY(device_.Record(ready_[i][slot].get(), compute_.get()));
  OOC_TRY(device_.Wait(drain_.get(), ready_[i][slot].get()));
  transfer.view = tensor.view;
  transfer.bounce = BounceOf(call, 1);
  if (staging_.Serves(operand)) {
    OOC_TRY(DrainStaged(transfer));
  } else {
    OOC_TRY(device_.Drain(drain_.get(), transfer));
  }
  if (tensor.tier != Tier::kDevice) {
    call.stats->bytes_out += mine.box.ValidElements() * SizeOf(tensor.view.dtype);
  }
  return device_.Record(idle_[i][slot].get(), drain_.get());
}

Status TileLoop::DrainStaged(const Transfer& whole) {
  const Piece part{whole.box.valid_begin, whole.box.valid_end};
  Cut cut = staging_.CutOf(whole.operand, part);
  for (Piece piece; cut.Next(&piece);) {
    Transfer transfer = PieceOf(whole, part, piece);
    OOC_ASSIGN(transfer.view, staging_.Give(whole.operand, piece));
    OOC_TRY(device_.Drain(drain_.get(), transfer));
    OOC_TRY(staging_.Given(whole.operand, drain_.get()));
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
