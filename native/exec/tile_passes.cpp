// The tile loop's passes beside the convolution: what finishes a tile, what restores one, and what
// hands one on to the next link; and those of a normalisation.
#include "exec/tile_loop.hpp"

#include <algorithm>
#include <utility>

namespace oocdnn {
namespace {

// The rows of z in a tile that exist; along an axis there may be none.
struct Existing {
  Spatial begin{}, rows{};  // `begin`: in the tile
  bool all = true, any = true;
};

Existing ExistingOf(const Problem& problem, const Box& box) {
  Existing existing;
  for (int s = 0; s < 3; ++s) {
    const int64_t origin = box.origin[3 + s], extent = box.extent[3 + s];
    existing.begin[s] = std::clamp<int64_t>(-origin, 0, extent);
    const int64_t end = std::clamp<int64_t>(problem.shape.pooled[s] - origin, 0, extent);
    existing.rows[s] = std::max<int64_t>(end - existing.begin[s], 0);
    existing.all = existing.all && existing.rows[s] == extent;
    existing.any = existing.any && existing.rows[s] > 0;
  }
  return existing;
}

// The part of a plain tile that has these rows.
TileLayout PartOf(const TileLayout& layout, const Existing& existing, int64_t* before) {
  TileLayout part = layout;
  *before = 0;
  for (int s = 0; s < 3; ++s) {
    part.shape[3 + s] = existing.rows[s];
    *before += existing.begin[s] * layout.stride[3 + s] * SizeOf(layout.dtype);
  }
  part.bytes -= *before;
  return part;
}

// The pass over what of the operand's tile is in the tensor.
NormArgs NormOf(const Problem& problem, const Step& step, Operand operand) {
  const Box& box = step.operand[Index(operand)].box;
  NormArgs args;
  args.operand = operand;
  for (int d = 0; d < 6; ++d) {
    args.begin[d] = box.valid_begin[d] - box.origin[d];
    args.end[d] = box.valid_end[d] - box.origin[d];
  }
  const Dims whole = problem.DimsOf(operand);
  args.step = {whole[1] * whole[2], whole[2], 1};
  args.tag = {step.number, operand, nullptr};
  return args;
}

// The address of the tile's first entry in a table of the whole tensor.
void* EntriesOf(void* table, DType type, const NormArgs& args, const Box& box) {
  const int64_t first = args.EntryOf(box.origin[0], box.origin[1], box.origin[2]);
  return static_cast<char*>(table) + first * SizeOf(type);
}

}  // namespace

// Between two tiles of the device, which no wire is between. Zeros around what exists are in the
// tile that is read. Of the other one nothing is written that this does not have.
Status TileLoop::Relay(const LinkTile& from, const LinkTile& to) {
  const int source = Index(from.operand), target = Index(to.operand);
  const TileLayout& layout = from.call.booking.Of(from.step.index).layout[source];
  const Box &whole = from.step.operand[source].box, &part = to.step.operand[target].box;
  Transfer transfer;
  transfer.operand = to.operand;
  transfer.view = {
      TileOf(from.call, from.step, from.operand), layout.dtype, layout.stride, {Tier::kDevice}};
  // The channels are grouped as those of the other tile.
  transfer.view.stride[1] = part.extent[2] * layout.stride[2];
  transfer.box = {{}, part.extent, {}, part.extent};
  transfer.tile_end = part.extent;
  for (int d = 3; d < 6; ++d) {
    const int64_t origin = part.origin[d] - whole.origin[d];
    const int64_t end = std::min(origin + part.extent[d], whole.extent[d]);
    transfer.box.Set(d, {origin, part.extent[d], std::max<int64_t>(origin, 0), end});
    transfer.tile_begin[d] = transfer.box.valid_begin[d] - origin;
    transfer.tile_end[d] = end - origin;
  }
  transfer.tile = TileOf(to.call, to.step, to.operand);
  transfer.layout = &to.call.booking.Of(to.step.index).layout[target];
  transfer.tag = {to.step.number, to.operand, nullptr};
  return device_.Fetch(compute_.get(), transfer);
}

Status TileLoop::TakeResidual(const Calls& calls, const std::vector<Step>& steps, size_t link) {
  const int64_t source = calls[link].booking.residual;
  const bool x = source == kFromX;
  const size_t from = x ? 0 : static_cast<size_t>(source);
  const Operand operand = x ? Operand::kX : Operand::kZ;
  if (x) OOC_TRY(device_.Wait(compute_.get(), Ready(calls[0], steps[0], operand)));
  return Relay({calls[from], steps[from], operand}, {calls[link], steps[link], Operand::kResidual});
}

// What the finishing pass writes beside the sum's own tile.
Status TileLoop::PutPooled(const Call& call, const Step& step, FinishArgs* args) {
  const Problem& problem = call.booking.problem;
  const auto made = [&](Operand operand, PooledTile* tile) -> Status {
    if (!problem.Writes(operand)) return {};
    tile->data = TileOf(call, step, operand);
    tile->layout = &call.booking.Of(step.index).layout[Index(operand)];
    return AwaitDrain(call, step, operand);
  };
  OOC_TRY(made(Operand::kZ, &args->pooled.z));
  OOC_TRY(made(Operand::kSaved, &args->pooled.saved));
  args->pooled.pool = problem.pool;
  args->pooled.saving = problem.saving();
  args->pooled.extent = problem.shape.out;
  for (int s = 0; s < 3; ++s) {
    args->pooled.y_origin[s] = step.operand[Index(Operand::kY)].box.origin[3 + s];
    args->pooled.z_origin[s] = step.operand[Index(Operand::kZ)].box.origin[3 + s];
  }
  return {};
}

Status TileLoop::PoolBackward(const Call& call, const Step& step, void* dy,
                              const TileLayout& layout, const Box& box) {
  const Problem& problem = call.booking.problem;
  const auto tile = [&](Operand operand) -> PooledTile {
    if (!problem.Uses(operand)) return {};
    return {TileOf(call, step, operand), &call.booking.Of(step.index).layout[Index(operand)]};
  };
  PoolBackwardArgs args;
  args.dy = dy;
  args.layout = &layout;
  args.box = box;
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
  return device_.PoolBackward(compute_.get(), args);
}

// Rows shared with an adjacent tile have already been normalised there.
Status TileLoop::Normalize(const Call& call, const Step& step) {
  const Problem& problem = call.booking.problem;
  const Operand source = problem.source();
  const OperandStep& mine = step.operand[Index(source)];
  NormArgs args = NormOf(problem, step, source);
  args.tile = TileOf(call, step, source);
  args.layout = &call.booking.Of(step.index).layout[Index(source)];
  if (mine.from_slot >= 0) {
    args.begin[mine.roll_axis] = std::max(args.begin[mine.roll_axis], mine.kept);
  }
  args.activation = problem.prologue.activation;
  args.parameter = problem.prologue.parameter;
  if (problem.prologue.affine) {
    void* const table = TileOf(call, step, Operand::kPrologue);
    args.table = EntriesOf(table, problem.DTypeOf(Operand::kPrologue), args, mine.box);
  }
  return device_.Norm(compute_.get(), args);
}

Status TileLoop::SumUp(const Call& call, const Step& step, bool complete) {
  const Problem& problem = call.booking.problem;
  const Operand sum = problem.sum();
  const PreparedTiles& tiles = call.booking.Of(step.index);
  void* const table = TileOf(call, step, Operand::kSums);
  if (step.operand[Index(Operand::kSums)].enter) {
    OOC_TRY(AwaitDrain(call, step, Operand::kSums));
    const int64_t bytes = tiles.layout[Index(Operand::kSums)].bytes;
    OOC_TRY(device_.Fill(compute_.get(), table, bytes, 0));
  }
  if (!complete) return {};
  NormArgs args = NormOf(problem, step, sum);
  args.pass = NormPass::kSum;
  args.tile = TileOf(call, step, sum);
  args.layout = &tiles.layout[Index(sum)];
  args.rounded = problem.dtype;
  args.table = EntriesOf(table, DType::kFloat64, args, step.operand[Index(sum)].box);
  return device_.Norm(compute_.get(), args);
}

// Of z, which the engine has written; few tiles are at the tensor's rim.
Status TileLoop::ClearBeyond(const Call& call, const Step& step) {
  const OperandStep& z = step.operand[Index(Operand::kZ)];
  const Existing existing = ExistingOf(call.booking.problem, z.box);
  if (existing.all) return {};
  Transfer zeros = TransferOf(call, step, Operand::kZ);
  zeros.box = {{}, z.box.extent, {}, {}};
  zeros.view = {zeros.tile, zeros.layout->dtype, zeros.layout->stride, {Tier::kDevice}};
  for (int s = 0; s < 3; ++s) {
    const int64_t end = existing.begin[s] + existing.rows[s];
    for (const auto& [from, to] :
         {std::pair{int64_t{0}, existing.begin[s]}, std::pair{end, z.box.extent[3 + s]}}) {
      if (from == to) continue;
      Transfer slab = zeros;
      slab.tile_begin[3 + s] = from;
      slab.tile_end[3 + s] = to;
      OOC_TRY(device_.Fetch(compute_.get(), slab));
    }
  }
  return {};
}

// What is left to do where the engine has finished the sums: windows.
Status TileLoop::Finish(const Call& call, const Step& step) {
  const Problem& problem = call.booking.problem;
  const bool fuses = call.booking.Of(step.index).fuses();
  if (call.booking.writes_z) return ClearBeyond(call, step);
  if (!problem.NeedsFinish() || (fuses && !problem.Writes(Operand::kZ))) return {};
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
  if (!fuses) args.epilogue = problem.epilogue;
  args.tag = {step.number, problem.sum(), nullptr};
  OOC_TRY(PutPooled(call, step, &args));
  return call.booking.inner[Index(Operand::kZ)] ? FinishInner(call, step, args)
                                                : device_.Finish(compute_.get(), args);
}

// What the next link reads has zeros around what exists of z.
Status TileLoop::FinishInner(const Call& call, const Step& step, FinishArgs args) {
  const Existing existing = ExistingOf(call.booking.problem, step.operand[Index(Operand::kZ)].box);
  if (existing.all) return device_.Finish(compute_.get(), args);
  PooledTile& z = args.pooled.z;
  OOC_TRY(device_.Fill(compute_.get(), z.data, z.layout->bytes, 0));
  if (!existing.any) return {};
  int64_t before = 0;  // bytes
  const TileLayout part = PartOf(*z.layout, existing, &before);
  z = {static_cast<char*>(z.data) + before, &part};
  for (int s = 0; s < 3; ++s) args.pooled.z_origin[s] += existing.begin[s];
  return device_.Finish(compute_.get(), args);
}

}  // namespace oocdnn
