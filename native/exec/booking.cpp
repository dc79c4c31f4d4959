#include "exec/booking.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "device/layouts.hpp"
#include "exec/packed_box.hpp"
#include "memory/arena.hpp"

namespace oocdnn {
namespace {

// What computes that sum.
const Executable& PartOf(const PreparedTiles& tiles, Operand sum) {
  return *std::find_if(tiles.parts.begin(), tiles.parts.end(), [&](const PreparedPart& prepared) {
            return prepared.part.sum == sum;
          })->executable;
}

// Bias and scale lie densely in the accumulator's type, one value per channel of the tile.
TileLayout ChannelLayout(const Problem& problem, const ConvShape& tile) {
  TileLayout layout;
  layout.dtype = AccumulatorOf(problem.dtype);
  layout.shape = tile.DimsOf(Operand::kBias, problem.direction);
  layout.stride = DenseStrides(layout.shape);
  layout.bytes = Mul(Mul(layout.shape[1], layout.shape[2]), SizeOf(layout.dtype));
  return layout;
}

TileLayout LayoutOf(const Problem& problem, const ConvShape& tile, const PreparedTiles& tiles,
                    Operand operand) {
  const Executable& executable = tiles.executable();
  switch (operand) {
    case Operand::kOld:
    case Operand::kResidual: return executable.layout(problem.sum());
    case Operand::kInput: return PartOf(tiles, Operand::kDw).layout(Operand::kX);
    case Operand::kDw: return PartOf(tiles, Operand::kDw).layout(Operand::kW);
    case Operand::kDb: return PartOf(tiles, Operand::kDb).layout(Operand::kBias);
    // What the finishing pass writes lies as the caller's tensor does, in its type: whatever the
    // engine's tiles look like, the pass reorders them on the way, and the drain is a plain copy.
    case Operand::kZ:
    case Operand::kPrologue:
    case Operand::kSums:
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

Result<std::unique_ptr<Executable>> PrepareOn(Device& device, const PlanRequest& request,
                                              int engine, const TileOp& op) {
  Result<std::unique_ptr<Executable>> made = device.Prepare(engine, op);
  if (!made.ok()) return Refusal(std::move(made).status(), request, op);
  return made;
}

// The candidate's engine, or for what comes along the first other one that does not refuse.
Result<std::unique_ptr<Executable>> PreparePart(Device& device, const PlanRequest& request,
                                                int engine, const TileOp& op, bool along) {
  Result<std::unique_ptr<Executable>> made = PrepareOn(device, request, engine, op);
  for (size_t i = 0; i < request.engines.size() && along; ++i) {
    if (made.ok() || made.status().code() != Code::kUnsupported) break;
    if (request.engines[i].name.empty() || static_cast<int>(i) == engine) continue;
    Result<std::unique_ptr<Executable>> other = PrepareOn(device, request, static_cast<int>(i), op);
    if (other.ok()) made = std::move(other);
  }
  return made;
}

// Whether tiles of dy share rows, of which db counts each once.
bool SharesRows(const Problem& problem, const Tiling& tiling) {
  bool shares = false;
  for (int s = 0; s < 3; ++s) {
    shares = shares || tiling.Count(static_cast<Axis>(Index(Axis::kD) + s)) > 1;
  }
  return shares && problem.also.db && problem.direction == Direction::kBackwardData;
}

// Passes along the channels of a tile have to know them.
Status CheckChannels(const Problem& problem, const PreparedTiles& tiles) {
  const bool reads = problem.prologue.any() && tiles.layout[Index(problem.source())].opaque;
  const bool sums = problem.sums && tiles.layout[Index(problem.sum())].opaque;
  if (!reads && !sums) return {};
  return Error(Code::kUnsupported,
               "%s keeps its tiles to itself: there is no prologue, and no sums",
               tiles.executable().engine().c_str());
}

Result<PreparedTiles> PrepareTiles(Device& device, const PlanRequest& request,
                                   const Candidate& candidate, const ConvShape& shape,
                                   int64_t workspace) {
  PreparedTiles tiles;
  for (const Part& part : PartsOf(request.problem)) {
    TileOp op = OpOf(request, candidate, part);
    op.shape = shape;
    op.workspace_limit = std::min(op.workspace_limit, workspace);
    PreparedPart prepared{part, nullptr, false, !op.epilogue.empty()};
    const bool along = !tiles.parts.empty();
    OOC_ASSIGN(prepared.executable, PreparePart(device, request, candidate.engine, op, along));
    const bool alone = part.sum == Operand::kDb && SharesRows(request.problem, candidate.tiling);
    prepared.own_dy = along && (alone || !LieAlike(prepared.executable->layout(Operand::kY),
                                                   tiles.executable().layout(Operand::kY)));
    tiles.parts.push_back(std::move(prepared));
  }
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!request.problem.Uses(operand)) continue;
    tiles.layout[i] = LayoutOf(request.problem, shape, tiles, operand);
  }
  const bool walked = request.problem.passes_y() || request.problem.Uses(Operand::kSaved);
  for (const PreparedPart& prepared : tiles.parts) {
    if (!walked || !prepared.executable->layout(Operand::kY).opaque) continue;
    return Error(Code::kUnsupported,
                 "%s keeps its tiles to itself: what is pooled or saved cannot be read from them, "
                 "and nothing restored",
                 prepared.executable->engine().c_str());
  }
  OOC_TRY(CheckChannels(request.problem, tiles));
  return tiles;
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

}  // namespace

TileLayout DenseLayout(const Problem& problem, const ConvShape& tile, Operand operand) {
  return PlainLayout(problem.DTypeOf(operand), tile.DimsOf(operand, problem.direction),
                     SlowestFirst(problem.stride[Index(operand)]));
}

// What the device alone can address may differ in ways that nothing here can see. Along one element
// nobody steps.
bool LieAlike(const TileLayout& a, const TileLayout& b) {
  bool alike = a.dtype == b.dtype && a.shape == b.shape && a.channel_block == b.channel_block &&
               a.bytes == b.bytes && !a.opaque && !b.opaque;
  for (size_t d = 0; d < a.shape.size(); ++d) {
    alike = alike && (a.stride[d] == b.stride[d] || a.shape[d] == 1);
  }
  return alike;
}

Status Prepare(Device& device, const PlanRequest& request, const ShapeOfTiles& shape_of,
               int64_t workspace, Booking* booking) {
  const auto prepare = [&](bool is_short) {
    return PrepareTiles(device, request, booking->candidate, shape_of(is_short), workspace);
  };
  OOC_ASSIGN(booking->usual, prepare(false));
  if (!booking->candidate.tiling.tapered()) return {};
  OOC_ASSIGN(booking->ends, prepare(true));
  return CheckShared(*booking);
}

// Slots and workspace are as large as the larger of the two shapes.
int64_t SlotBytes(const Booking& booking, int operand) {
  return std::max(booking.usual.layout[operand].bytes, booking.ends.layout[operand].bytes);
}

bool UsedInPlace(const Booking& booking, Operand operand, int64_t alignment) {
  const Tiling& tiling = booking.candidate.tiling;
  const auto lies = [&](const PreparedTiles& tiles, int64_t samples) {
    return tiles.parts.empty() ||
           LiesAsItsTile(booking.problem, operand, samples, tiles.layout[Index(operand)]);
  };
  return tiling.DividesBatch() && BeginsWithTensor(booking.problem, operand, tiling) &&
         AlignsTiles(booking.problem, operand, tiling, alignment) &&
         lies(booking.usual, tiling.length[Index(Axis::kN)]) &&
         lies(booking.ends, tiling.taper.length);
}

int64_t Booking::WorkspaceBytes() const {
  int64_t bytes = 0;
  for (const PreparedTiles* tiles : {&usual, &ends}) {
    for (const PreparedPart& prepared : tiles->parts) {
      bytes = std::max(bytes, prepared.executable->workspace_bytes());
    }
  }
  return bytes;
}

int64_t Booking::OwnDyBytes() const {
  int64_t bytes = 0;
  for (const PreparedTiles* tiles : {&usual, &ends}) {
    for (const PreparedPart& prepared : tiles->parts) {
      if (!prepared.own_dy) continue;
      bytes = std::max(bytes, prepared.executable->layout(Operand::kY).bytes);
    }
  }
  return bytes;
}

Result<Booking> Book(Device& device, const PlanRequest& request, const Candidate& candidate,
                     int64_t budget) {
  Booking booking;
  booking.problem = request.problem;
  booking.candidate = candidate;
  // What the tiles leave: an engine that can do with less workspace then does.
  const int64_t beside = Add(EstimateBytes(request, candidate), 2 * request.bounce_bytes);
  const int64_t workspace = std::max<int64_t>(budget - beside, 0);
  const auto shape_of = [&](bool is_short) {
    return TileShape(request.problem, candidate.tiling, is_short);
  };
  OOC_TRY(Prepare(device, request, shape_of, workspace, &booking));

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
  if (const int64_t bytes = booking.OwnDyBytes(); bytes > 0) booking.own_dy = offsets.Book(bytes);
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
