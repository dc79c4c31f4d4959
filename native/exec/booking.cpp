#include "exec/booking.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "exec/packed_box.hpp"
#include "memory/arena.hpp"

namespace oocdnn {
namespace {

// Bias and scale lie densely in the accumulator's type, one value per channel of the tile.
TileLayout ChannelLayout(const Problem& problem, const ConvShape& tile) {
  TileLayout layout;
  layout.dtype = AccumulatorOf(problem.dtype);
  layout.shape = tile.DimsOf(Operand::kBias, problem.direction);
  layout.stride = DenseStrides(layout.shape);
  layout.bytes = Mul(Mul(layout.shape[1], layout.shape[2]), SizeOf(layout.dtype));
  return layout;
}

// What the finishing pass writes lies as the caller's tensor does, in its type: whatever the
// engine's tiles look like, the pass reorders them on the way, and the drain is a plain copy.
TileLayout DenseLayout(const Problem& problem, const ConvShape& tile, Operand operand) {
  TileLayout layout;
  layout.dtype = problem.DTypeOf(operand);
  layout.shape = tile.DimsOf(operand, problem.direction);
  const std::array<int, 6> order = SlowestFirst(problem.stride[Index(operand)]);
  int64_t elements = 1;
  for (int i = 5; i >= 0; --i) {
    layout.stride[order[i]] = elements;
    elements = Mul(elements, layout.shape[order[i]]);
  }
  layout.bytes = Mul(elements, SizeOf(layout.dtype));
  return layout;
}

TileLayout LayoutOf(const Problem& problem, const ConvShape& tile, const Executable& executable,
                    Operand operand) {
  switch (operand) {
    case Operand::kOld:
    case Operand::kResidual: return executable.layout(problem.sum());
    case Operand::kZ:
    case Operand::kSaved: return DenseLayout(problem, tile, operand);
    case Operand::kBias:
      if (problem.sum() == Operand::kBias) return executable.layout(operand);
      return ChannelLayout(problem, tile);
    case Operand::kScale: return ChannelLayout(problem, tile);
    default: return executable.layout(operand);
  }
}

// Whether a tile of so many samples is a part of the tensor as it lies in the caller's memory.
bool LiesAsItsTile(const Problem& problem, Operand operand, int64_t samples,
                   const TileLayout& layout) {
  Dims dims = problem.DimsOf(operand);
  if (Moves(problem, operand, Axis::kN)) dims[0] = samples;
  const Dims& stride = problem.stride[Index(operand)];
  bool same = layout.dtype == problem.DTypeOf(operand) && layout.shape == dims && !layout.opaque &&
              layout.channel_block == 1;
  int64_t bytes = SizeOf(layout.dtype);
  for (int d = 0; d < 6; ++d) {
    same = same && (dims[d] == 1 || layout.stride[d] == stride[d]);
    bytes = Mul(bytes, dims[d]);
  }
  return same && layout.bytes == bytes;  // some engines read on behind the last element
}

// What is refused for want of workspace alone, no budget helps.
Status Refusal(Status why, const PlanRequest& request, const TileOp& op) {
  const bool limited = why.code() == Code::kOutOfMemory && op.workspace_limit == request.workspace;
  if (!limited) return why;
  return Error(Code::kUnsupported, "%s; the limit of workspace is %s, allow more",
               why.message().c_str(), BytesText(request.workspace).c_str());
}

Result<PreparedTiles> PrepareTiles(Device& device, const PlanRequest& request,
                                   const Candidate& candidate, const TileOp& op) {
  PreparedTiles tiles;
  Result<std::unique_ptr<Executable>> made = device.Prepare(candidate.engine, op);
  if (!made.ok()) return Refusal(std::move(made).status(), request, op);
  tiles.executable = std::move(made).value();
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!request.problem.Uses(operand)) continue;
    tiles.layout[i] = LayoutOf(request.problem, op.shape, *tiles.executable, operand);
  }
  const bool walked = request.problem.passes_y() || request.problem.Uses(Operand::kSaved);
  if (walked && tiles.layout[Index(Operand::kY)].opaque) {
    return Error(Code::kUnsupported,
                 "%s keeps its tiles to itself: what is pooled or saved cannot be read from them, "
                 "and nothing restored",
                 tiles.executable->engine().c_str());
  }
  return tiles;
}

// What the device alone can address may differ in ways that nothing here can see.
bool LieAlike(const TileLayout& a, const TileLayout& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.stride == b.stride &&
         a.channel_block == b.channel_block && a.bytes == b.bytes && !a.opaque && !b.opaque;
}

// A tile that short and usual tiles take turns with, like a resident filter or the sums of a
// filter's gradient, is in one slot, which both engines must understand.
Status CheckShared(const Booking& booking) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!booking.problem.Uses(operand)) continue;
    if (Moves(booking.problem, operand, booking.candidate.tiling.taper.axis)) continue;
    if (LieAlike(booking.usual.layout[i], booking.ends.layout[i])) continue;
    return Error(Code::kUnsupported, "%s has another layout in short tiles: plan without a taper",
                 Name(operand, booking.problem.direction));
  }
  return {};
}

// Slots and workspace are as large as the larger of the two shapes.
int64_t SlotBytes(const Booking& booking, int operand) {
  return std::max(booking.usual.layout[operand].bytes, booking.ends.layout[operand].bytes);
}

// Whether the tiles of the operand begin where the device lets tiles begin, if the tensor does.
bool AlignsTiles(const Problem& problem, Operand operand, const Tiling& tiling, int64_t alignment) {
  if (tiling.Count(Axis::kN) <= 1 || !Moves(problem, operand, Axis::kN)) return true;
  const int64_t sample = Mul(problem.stride[Index(operand)][0], SizeOf(problem.DTypeOf(operand)));
  const int64_t first = tiling.Begin(Axis::kN, 1), usual = tiling.length[Index(Axis::kN)];
  return Mul(first, sample) % alignment == 0 && Mul(usual, sample) % alignment == 0;
}

// Where padding is data a tile may be as long as the tensor and yet begin before it.
bool BeginsWithTensor(const Problem& problem, Operand operand, const Tiling& tiling) {
  return RegionOf(problem, tiling, operand, TileIndex{}).origin == Dims{};
}

bool UsedInPlace(const Booking& booking, Operand operand, int64_t alignment) {
  const Tiling& tiling = booking.candidate.tiling;
  const auto lies = [&](const PreparedTiles& tiles, int64_t samples) {
    return tiles.executable == nullptr ||
           LiesAsItsTile(booking.problem, operand, samples, tiles.layout[Index(operand)]);
  };
  return tiling.DividesBatch() && BeginsWithTensor(booking.problem, operand, tiling) &&
         AlignsTiles(booking.problem, operand, tiling, alignment) &&
         lies(booking.usual, tiling.length[Index(Axis::kN)]) &&
         lies(booking.ends, tiling.taper.length);
}

}  // namespace

int64_t Booking::WorkspaceBytes() const {
  int64_t bytes = 0;
  for (const PreparedTiles* tiles : {&usual, &ends}) {
    if (tiles->executable != nullptr) bytes = std::max(bytes, tiles->executable->workspace_bytes());
  }
  return bytes;
}

Result<Booking> Book(Device& device, const PlanRequest& request, const Candidate& candidate,
                     int64_t budget) {
  Booking booking{request.problem, candidate, {}, {}, {}, {}, 0, {}};
  TileOp op = OpOf(request, candidate);
  // What the tiles leave: an engine that can do with less workspace then does.
  const int64_t beside = Add(EstimateBytes(request, candidate), 2 * request.bounce_bytes);
  op.workspace_limit = std::min(op.workspace_limit, std::max<int64_t>(budget - beside, 0));
  OOC_ASSIGN(booking.usual, PrepareTiles(device, request, candidate, op));
  if (candidate.tiling.tapered()) {
    op.shape = TileShape(request.problem, candidate.tiling, true);
    OOC_ASSIGN(booking.ends, PrepareTiles(device, request, candidate, op));
    OOC_TRY(CheckShared(booking));
  }

  Offsets offsets(device.capabilities().alignment);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!request.problem.Uses(operand)) continue;
    booking.in_place[i] =
        request.in_place[i] && UsedInPlace(booking, operand, device.capabilities().tile_alignment);
    if (booking.in_place[i]) continue;
    for (int slot = 0; slot < std::max(candidate.depths[i], 1); ++slot) {
      booking.slot[i].push_back(offsets.Book(SlotBytes(booking, i)));
    }
  }
  if (request.bounce_bytes > 0) {
    booking.bounce_bytes = request.bounce_bytes;
    for (int64_t& offset : booking.bounce) offset = offsets.Book(request.bounce_bytes);
  }
  if (const int64_t bytes = booking.WorkspaceBytes(); bytes > 0) {
    booking.workspace = offsets.Book(bytes);
  }
  booking.bytes = offsets.total();
  if (booking.bytes > budget) {
    return Error(Code::kOutOfMemory, "%s books %s, the budget is %s",
                 Describe(request, candidate).c_str(), BytesText(booking.bytes).c_str(),
                 BytesText(budget).c_str())
        .WithDetail(booking.bytes);
  }
  return booking;
}

}  // namespace oocdnn
