#include "model/price/tapered.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

double ShortShare(const Tiling& tiling) {
  return static_cast<double>(tiling.ShortTiles()) /
         static_cast<double>(tiling.Count(tiling.taper.axis));
}

double ComputeSeconds(const Problem& problem, const Rates& rates, const Tiling& tiling) {
  const AxisArray counts = CountsOf(tiling);
  const double short_share = ShortShare(tiling);
  const auto steps = static_cast<double>(tiling.Tiles());
  const auto outputs = static_cast<double>(BoxesOf(problem, counts, problem.output()));
  const auto of_all = [&](bool is_short, double share) {
    const TileSeconds tile = SecondsOf(problem, rates, tiling, is_short);
    return share * (steps * tile.run + outputs * tile.finish);
  };
  return of_all(false, 1.0 - short_share) + of_all(true, short_share);
}

}  // namespace

TileSeconds SecondsOf(const Problem& problem, const Rates& rates, const Tiling& tiling,
                      bool is_short) {
  const ConvShape usual = TileShape(problem, tiling);
  const Partial partial = rates.PartialOf(CountsOf(tiling));
  if (!is_short) {
    return {rates.RunSeconds(usual, partial), rates.FinishSeconds(usual),
            rates.PoolBackwardSeconds(usual), rates.NormalizeSeconds(usual)};
  }
  const ConvShape tile = TileShape(problem, tiling, true);
  return {rates.ShortRunSeconds(tile, usual, partial), rates.FinishSeconds(tile),
          rates.PoolBackwardSeconds(tile), rates.NormalizeSeconds(tile)};
}

Dims TransferredOf(const OperandStep& operand) {
  const Box& box = operand.box;
  Dims moved{};
  for (int d = 0; d < 6; ++d) {
    int64_t begin = box.valid_begin[d];
    if (operand.from_slot >= 0 && d == operand.roll_axis) {
      begin = std::max(begin, box.origin[d] + operand.kept);
    }
    moved[d] = std::max<int64_t>(box.valid_end[d] - begin, 0);
  }
  return moved;
}

Load LoadOf(const Dims& moved, const MemoryOrder::Steps& steps) {
  Load load;
  load.rows.broken = steps.broken;
  for (int d = 0; d < 6; ++d) {
    load.elements = Mul(load.elements, moved[d]);
    load.rows.Multiply(steps[d], OneTile(moved[d], steps.piece));
  }
  return load;
}

void CountShort(const Problem& problem, const Rates& rates, const Tiling& tiling, Totals* totals) {
  const AxisArray counts = CountsOf(tiling);
  TileIndex last{};
  std::transform(counts.begin(), counts.end(), last.begin(), [](int64_t n) { return n - 1; });
  totals->compute_seconds = ComputeSeconds(problem, rates, tiling);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Has(operand)) continue;
    const bool drains = problem.Writes(operand);
    OperandStep end;
    end.box = RegionOf(problem, tiling, operand, drains ? last : TileIndex{});
    const Load load = LoadOf(TransferredOf(end), rates.memory().StepsOf(operand, counts));
    Flow& flow = totals->flow[i];
    flow.end_seconds = drains ? rates.DrainSeconds(operand, load.elements, load.rows)
                              : rates.FetchSeconds(operand, load.elements, load.rows);
    flow.end_bytes = static_cast<double>(Mul(load.elements, SizeOf(problem.DTypeOf(operand))));
  }
  const double share = ShortShare(tiling);
  const ConvShape usual_tile = TileShape(problem, tiling),
                  end_tile = TileShape(problem, tiling, true);
  if (Moves(problem, problem.source(), tiling.taper.axis)) {
    Flow& read = totals->flow[Index(problem.source())];
    const double less = rates.NormalizeSeconds(usual_tile) - rates.NormalizeSeconds(end_tile);
    read.move_seconds -= share * less * static_cast<double>(read.transfers);
  }
  Flow& made = totals->flow[Index(Operand::kY)];  // dy, where it is restored
  if (!problem.restores() || !Moves(problem, Operand::kY, tiling.taper.axis)) return;
  const double usual = rates.PoolBackwardSeconds(usual_tile),
               ends = rates.PoolBackwardSeconds(end_tile);
  if (usual > 0.0) made.move_seconds *= 1.0 - share + share * ends / usual;
}

}  // namespace oocdnn
