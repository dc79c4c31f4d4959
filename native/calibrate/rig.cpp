#include "calibrate/rig.hpp"

#include <algorithm>
#include <utility>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "base/watch.hpp"
#include "memory/arena.hpp"
#include "memory/owners.hpp"
#include "planner/random_fill.hpp"

namespace oocdnn {

Problem SampleOf(ConvShape shape, DType dtype, Math math, Direction direction, int64_t taps) {
  Problem problem;
  problem.direction = direction;
  problem.dtype = dtype;
  problem.math = math;
  shape.filter = {1, taps, taps};
  shape.pad_before = shape.pad_after = {0, taps / 2, taps / 2};
  problem.shape = shape;
  for (int i = 0; i < kOperands; ++i) {
    problem.stride[i] = DenseStrides(problem.DimsOf(static_cast<Operand>(i)));
  }
  return problem;
}

ConvShape ShapeFor(const EngineInfo& engine, ConvShape shape) {
  if (!engine.depthwise) return shape;
  shape.g = shape.c;
  shape.c = shape.k = 1;
  return shape;
}

namespace {

// Of the tiles, in whatever order their elements are.
int64_t LeastBytes(const Problem& problem, const TileOp& op, bool second_x) {
  int64_t bytes = 0;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Uses(operand)) continue;
    int64_t tile = SizeOf(operand == problem.sum() ? op.out_dtype : op.dtype);
    if (operand == Operand::kX && second_x) tile = Mul(tile, 2);
    for (const int64_t extent : op.shape.DimsOf(operand, op.direction)) tile = Mul(tile, extent);
    bytes = Add(bytes, tile);
  }
  return bytes;
}

}  // namespace

Rig::Rig(Device& device, const Problem& problem, const Tiling& tiling, const ConvShape& shape,
         std::unique_ptr<Executable> executable, int64_t bytes)
    : device_(device),
      problem_(problem),
      tiling_(tiling),
      shape_(shape),
      executable_(std::move(executable)),
      block_(DeviceBlock(device, bytes)) {}

Result<std::unique_ptr<Rig>> Rig::Make(Device& device, int engine, const Problem& problem,
                                       int64_t limit, Timed timed) {
  const EngineInfo& info = device.engines()[static_cast<size_t>(engine)];
  const Tiling tiling = WholeTiling(problem, !info.symmetric_padding);
  TileOp op;
  op.direction = problem.direction;
  op.shape = TileShape(problem, tiling);
  op.dtype = problem.dtype;
  op.out_dtype = timed == Timed::kSums ? AccumulatorOf(op.dtype) : op.dtype;
  op.math = info.MathFor(problem.math);
  const bool copies = timed == Timed::kCopies;
  const int64_t bounce = device.capabilities().bounce_bytes;
  const int64_t tiles = Add(LeastBytes(problem, op, copies), (copies ? 2 : 1) * bounce);
  op.workspace_limit = std::max<int64_t>(limit - tiles, 0);
  op.trial_limit = copies ? 0 : limit;
  const Watch watch;
  OOC_ASSIGN(std::unique_ptr<Executable> executable, device.Prepare(engine, op));
  const double preparing = watch.Seconds();
  Offsets offsets(device.capabilities().alignment);
  const auto book = [&](Operand operand) {
    return problem.Uses(operand) ? offsets.Book(executable->layout(operand).bytes) : 0;
  };
  std::array<int64_t, kOperands> at{};
  for (int i = 0; i < kOperands; ++i) at[i] = book(static_cast<Operand>(i));
  const int64_t second_x = copies ? book(Operand::kX) : 0;
  const int64_t workspace = offsets.Book(executable->workspace_bytes());
  const int64_t in = offsets.Book(bounce), out = copies ? offsets.Book(bounce) : in;
  if (offsets.total() > limit) {
    return Error(Code::kOutOfMemory, "measuring it takes %s of the device, and %s may be taken",
                 BytesText(offsets.total()).c_str(), BytesText(limit).c_str())
        .WithDetail(offsets.total());
  }
  std::unique_ptr<Rig> rig(
      new Rig(device, problem, tiling, op.shape, std::move(executable), offsets.total()));
  if (rig->block_.get() == nullptr) return Error(Code::kOutOfMemory, "no memory to calibrate");
  rig->prepare_seconds_ = preparing;
  for (int i = 0; i < kOperands; ++i) rig->tile_[i] = rig->block_.get() + at[i];
  rig->second_x_ = rig->block_.get() + second_x;
  rig->workspace_ = rig->block_.get() + workspace;
  rig->bounce_in_ = {rig->block_.get() + in, bounce};
  rig->bounce_out_ = {rig->block_.get() + out, bounce};
  OOC_ASSIGN(const OwnedStream stream, MakeStream(device, "calibrate"));
  OOC_TRY(FillRandomly(device, stream.get(), rig->block_.get(), offsets.total(), problem.dtype));
  return rig;
}

Status Rig::Run(Stream stream, Span* span) {
  RunArgs args;
  for (int i = 0; i < kOperands; ++i) args.tile[i] = tile_[i];
  args.workspace = workspace_;
  args.tag.span = span;
  return device_.Run(stream, *executable_, args);
}

Transfer Rig::TransferOf(Operand operand, const Host& host, Span* span) const {
  Transfer transfer;
  transfer.operand = operand;
  Dims dims = problem_.DimsOf(operand);
  dims[5] = host.width;
  transfer.view = {host.memory, problem_.dtype,
                   host.channels_last ? ChannelsLastStrides(dims) : DenseStrides(dims)};
  for (int d = 0; d < 3 && host.plane_pitch > 0; ++d) {
    const int64_t planes = transfer.view.stride[d] / (dims[3] * dims[4] * dims[5]);
    transfer.view.stride[d] = planes * (host.plane_pitch / SizeOf(problem_.dtype));
  }
  transfer.box = RegionOf(problem_, tiling_, operand, {});
  transfer.tile_end = transfer.box.extent;
  transfer.tile = tile_[Index(operand)];
  transfer.layout = &executable_->layout(operand);
  transfer.bounce = operand == problem_.output() ? bounce_out_ : bounce_in_;
  transfer.tag.span = span;
  return transfer;
}

TileMove Rig::MoveOfX(Span* span) const {
  TileMove move;
  move.from = tile_[Index(Operand::kX)];
  move.to = second_x_;
  move.extent = RegionOf(problem_, tiling_, Operand::kX, {}).extent;
  move.operand = Operand::kX;
  move.layout = &executable_->layout(Operand::kX);
  move.tag.span = span;
  return move;
}

}  // namespace oocdnn
