// Where operands are, slot sizes, and what a candidate asks of its engine.
#include "model/price/footprint.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "geom/engines.hpp"
#include "geom/sum_blocks.hpp"
#include "model/price/cuts.hpp"
#include "model/price/rows.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kBlock = 16;

// Blocked layouts pad channels to whole blocks; engines keep few channels plain.
int64_t PadChannels(int64_t channels) {
  return channels > kBlock / 2 ? RoundUp(channels, kBlock) : channels;
}

}  // namespace

bool OnDevice(const Problem& problem, const Tiers& tiers) {
  for (int i = 0; i < kOperands; ++i) {
    if (problem.Has(static_cast<Operand>(i)) && CrossesWire(tiers[i])) return false;
  }
  return true;
}

Footprint::Footprint(const Problem& problem, const EngineInfo& engine, bool fuses)
    : problem_(problem),
      blocked_(engine.blocks_channels),
      short_(engine.short_tiles),
      wide_(engine.wide_sums),
      fuses_(fuses) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    shaped_as_[i] = ShapedAs(problem, operand);
    element_bytes_[i] = {BytesOfElement(operand, false), BytesOfElement(operand, true)};
  }
}

int64_t Footprint::Elements(const ConvShape& tile, Operand operand) const {
  const Operand base = shaped_as_[Index(operand)];
  Dims dims = tile.DimsOf(base, problem_.direction);
  if (blocked_ && base == Operand::kW) {
    // A depthwise filter is blocked over its groups, any other over both channel axes.
    if (dims[1] == 1 && dims[2] == 1) dims[0] = PadChannels(dims[0]);
    dims[1] = PadChannels(dims[1]);
    dims[2] = PadChannels(dims[2]);
  } else if (blocked_ && (base == Operand::kX || base == Operand::kY)) {
    dims[1] = PadChannels(Mul(dims[1], dims[2]));
    dims[2] = 1;
  }
  return Product(dims);
}

int64_t Footprint::BytesOfElement(Operand operand, bool partial) const {
  if (operand == Operand::kZ || operand == Operand::kSaved || IsTable(operand))
    return SizeOf(problem_.DTypeOf(operand));
  const DType accumulator = AccumulatorOf(problem_.dtype);
  if (operand == Operand::kDw && wide_) return SizeOf(DType::kFloat64);
  if (shaped_as_[Index(operand)] == problem_.sum()) {
    if ((partial && SumsWide()) || problem_.direction == Direction::kBackwardBias)
      return SizeOf(DType::kFloat64);
    if (OutTypeOf(problem_, partial, fuses_) == accumulator) return SizeOf(accumulator);
  }
  if (operand == Operand::kDb) return SizeOf(DType::kFloat64);
  const bool wide = operand == Operand::kBias || operand == Operand::kScale;
  if (wide || operand == Operand::kDw) return SizeOf(accumulator);
  return SizeOf(short_ ? problem_.dtype : accumulator);
}

int64_t Footprint::SlotBytes(const ConvShape& tile, Operand operand, bool partial) const {
  const bool several = SumsWide() && NeedsWideSums(tile, partial);
  int64_t bytes = Mul(Elements(tile, operand), ElementBytes(operand, partial || several));
  if (operand == Operand::kY && problem_.also.any()) {
    bytes = Add(bytes, Mul(Elements(tile, operand), SizeOf(AccumulatorOf(problem_.dtype))));
  }
  return bytes > kSizeMax - kAlignment ? kSizeMax : RoundUp(bytes, kAlignment);
}

bool Footprint::Indexable(const ConvShape& tile) const {
  constexpr int64_t kLimit = (int64_t{1} << 31) - 1;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (problem_.Uses(operand) && Elements(tile, operand) >= kLimit) return false;
  }
  return true;
}

bool CutsReduction(const Problem& problem, const AxisArray& counts, Operand sum) {
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (counts[i] > 1 && !Moves(problem, sum, axis)) return true;
  }
  return false;
}

bool CutsReduction(const Problem& problem, const Tiling& tiling) {
  return CutsReduction(problem, CountsOf(tiling), problem.sum());
}

bool Fuses(const PlanRequest& request, int engine) {
  const EngineInfo& info = request.engines[static_cast<size_t>(engine)];
  return request.fuses && Finishes(info, request.problem);
}

DType OutTypeOf(const Problem& problem, bool partial, bool fuses) {
  const bool finished = fuses || !problem.NeedsFinish();
  return partial || !finished ? AccumulatorOf(problem.dtype) : problem.dtype;
}

int64_t EstimateBytes(const PlanRequest& request, const Candidate& candidate) {
  const Problem& problem = request.problem;
  const Footprint footprint(problem, request.engines[static_cast<size_t>(candidate.engine)],
                            Fuses(request, candidate.engine));
  const ConvShape tile = TileShape(problem, candidate.tiling);
  const bool partial = CutsReduction(problem, candidate.tiling);
  int64_t bytes = 0;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Uses(operand) || request.tiers[i] == Tier::kTile) continue;
    const int64_t slots = std::max(candidate.depths[i], 1);
    bytes = Add(bytes, Mul(slots, footprint.SlotBytes(tile, operand, partial)));
  }
  return bytes;
}

TileOp OpOf(const PlanRequest& request, const Candidate& candidate) {
  return OpOf(request, candidate, PartsOf(request.problem).front());
}

TileOp OpOf(const PlanRequest& request, const Candidate& candidate, const Part& part) {
  const Problem& problem = request.problem;
  TileOp op;
  op.direction = part.direction;
  op.shape = TileShape(problem, candidate.tiling);
  op.dtype = problem.dtype;
  op.math = problem.math;
  op.accumulates = CutsReduction(problem, CountsOf(candidate.tiling), part.sum);
  const bool fuses = Fuses(request, candidate.engine) && !op.accumulates;
  if (fuses) op.epilogue = problem.epilogue;
  op.out_dtype = OutTypeOf(problem, op.accumulates, fuses);
  op.reproducible = request.reproducible;
  op.first_choice = request.first_choice;
  op.may_compile = request.may_compile;
  op.workspace_limit = std::min(request.budget, request.workspace);
  op.trial_limit = BesideCode(request.budget);
  return op;
}

}  // namespace oocdnn
