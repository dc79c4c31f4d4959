#include "geom/tiling.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "geom/axes.hpp"
#include "geom/pool_backward_rows.hpp"
#include "geom/spatial_rows.hpp"

namespace oocdnn {
namespace {

bool DrivesInput(const Problem& problem) { return problem.direction == Direction::kBackwardData; }

using Rows = SpatialRows;

// One spatial axis of a tile. All arithmetic of tiles' halos and windows is here.
struct SpatialTile {
  Rows x, y, z, saved;
};

// Rows of dy that reach a tile of so many rows of dx.
int64_t RowsFor(const ConvShape& shape, int s, int64_t length) {
  return FloorDiv(length - 1 + shape.pad_before[s], shape.stride[s]) - FirstRow(shape, s, 0) + 1;
}

// Rows of dx in front of a tile's that the first of those reaches too.
int64_t Lead(const ConvShape& shape, int s) {
  return shape.pad_before[s] - FirstRow(shape, s, 0) * shape.stride[s];
}

// Of those, the ones that the tile need not hold, as many as its convolution is padded by. Engines
// like no pad as wide as the filter, and no input that is narrower.
int64_t FullPad(const ConvShape& shape, int s, int64_t length) {
  const int64_t beyond = (RowsFor(shape, s, length) - 1) * shape.stride[s];
  return std::min({Lead(shape, s), shape.Reach(s) - 1, beyond / 2});
}

SpatialTile DataTile(const ConvShape& shape, int s, int64_t begin, int64_t length, int64_t pad) {
  SpatialTile tile;
  const int64_t end = std::min(begin + length, shape.in[s]);
  const int64_t first = FirstRow(shape, s, begin);
  tile.x = {first * shape.stride[s] - shape.pad_before[s] + pad, begin, end};
  tile.y.begin = first;
  tile.y.valid_begin = std::clamp<int64_t>(first, 0, shape.out[s]);
  tile.y.valid_end =
      std::clamp(first + RowsFor(shape, s, length), tile.y.valid_begin, shape.out[s]);
  return tile;
}

SpatialTile GradientTile(const Problem& problem, int s, int64_t begin, int64_t length) {
  const ConvShape& shape = problem.shape;
  SpatialTile tile;
  tile.y = {begin, begin, std::min(begin + length, shape.out[s])};
  if (problem.direction == Direction::kBackwardFilter) {
    tile.y.begin = std::min(begin, shape.out[s] - length);
  }
  tile.x = RowsRead(shape, s, tile.y.begin, length);
  return tile;
}

// How far before row 0 of y a tile whose first row of z is 0 begins: at its window, or, for the
// sake of whole bytes of bits of y, further out.
int64_t LeadOfWindows(const Problem& problem, int s) {
  const int64_t pad = problem.pool.pad_before[s];
  const bool bits_of_y = problem.saving().what == Saved::kAlive;
  return s == 2 && bits_of_y ? RoundUp(pad, kSavedUnit) : pad;
}

// The rows of y that a tile of so many rows of z computes: its windows, and where bits of y are
// saved all up to the next tile.
int64_t RowsComputed(const Problem& problem, int s, int64_t length) {
  const Pool& pool = problem.pool;
  const int64_t windows = LeadOfWindows(problem, s) - pool.pad_before[s] +
                          (length - 1) * pool.stride[s] + pool.window[s];
  const bool all = problem.saving().what == Saved::kAlive;
  return all ? std::max(windows, length * pool.stride[s]) : windows;
}

// The last extent of what is saved is in bytes.
void ToBytes(const Problem& problem, int s, Rows* rows) {
  if (s != 2) return;
  const Saving saving = problem.saving();
  const auto whole = [&](int64_t row) { return FloorDiv(row, kSavedUnit) * saving.bits; };
  *rows = {whole(rows->begin), whole(rows->valid_begin), saving.RowBytes(rows->valid_end)};
}

Rows RowsSaved(const Problem& problem, int s, const SpatialTile& tile, int64_t length) {
  if (problem.saving().what == Saved::kNothing) return {};
  Rows saved = tile.z;
  if (problem.saving().what == Saved::kAlive) {
    const int64_t rows = problem.pool.RowsReached(s, problem.shape.out[s]);
    const int64_t next = tile.y.begin + length * problem.pool.stride[s];
    const bool last = tile.z.begin + length >= ExtentsOf(problem)[Index(Axis::kD) + s];
    saved.begin = tile.y.begin;
    saved.valid_begin = std::clamp<int64_t>(tile.y.begin, 0, rows);
    saved.valid_end = last ? rows : std::clamp<int64_t>(next, 0, rows);
  }
  ToBytes(problem, s, &saved);
  return saved;
}

bool IsCut(const Tiling& tiling, int s) {
  const int i = Index(Axis::kD) + s;
  return tiling.length[i] < tiling.extent[i];
}

Rows Within(const RowRange& range, int64_t all) {
  return {range.begin, std::clamp<int64_t>(range.begin, 0, all),
          std::clamp<int64_t>(range.begin + range.rows, 0, all)};
}

// Without a pool z is y.
SpatialTile ForwardTile(const Problem& problem, int s, int64_t begin, int64_t length) {
  const ConvShape& shape = problem.shape;
  const int64_t extent = ExtentsOf(problem)[Index(Axis::kD) + s];
  SpatialTile tile;
  tile.z = {begin, begin, std::min(begin + length, extent)};
  const int64_t rows = RowsComputed(problem, s, length);
  tile.y.begin = begin * problem.pool.stride[s] - LeadOfWindows(problem, s);
  tile.y.valid_begin = std::clamp<int64_t>(tile.y.begin, 0, shape.out[s]);
  tile.y.valid_end = std::clamp<int64_t>(tile.y.begin + rows, 0, shape.out[s]);
  tile.x = RowsRead(shape, s, tile.y.begin, rows);
  tile.saved = RowsSaved(problem, s, tile, length);
  return tile;
}

SpatialTile SpatialTileOf(const Problem& problem, const Tiling& tiling, int s, int64_t index) {
  const ConvShape& shape = problem.shape;
  if (!tiling.padding_as_data[s] && problem.direction != Direction::kBackwardBias) {
    return {
        {0, 0, shape.in[s]}, {0, 0, shape.out[s]}, {0, 0, shape.pooled[s]}, {0, 0, shape.saved[s]}};
  }
  const auto axis = static_cast<Axis>(Index(Axis::kD) + s);
  const int64_t begin = tiling.Begin(axis, index), length = tiling.Length(axis, index);
  if (problem.direction == Direction::kForward) return ForwardTile(problem, s, begin, length);
  const int64_t pad = tiling.full_padding ? FullPad(shape, s, length) : 0;
  const bool data = DrivesInput(problem);
  SpatialTile tile =
      data ? DataTile(shape, s, begin, length, pad) : GradientTile(problem, s, begin, length);
  if (!problem.restores()) return tile;
  if (!IsCut(tiling, s)) {
    tile.z = {0, 0, shape.pooled[s]};
    tile.saved = {0, 0, shape.saved[s]};
    return tile;
  }
  // Of a tile that is moved back what is wanted lies where it would begin otherwise.
  const int64_t first = data ? tile.y.begin : begin;
  const int64_t rows = data ? RowsFor(shape, s, length) : length;
  tile.z = Within(PoolBackwardRows(problem, s, first, rows), shape.pooled[s]);
  tile.saved = Within(PoolBackwardBits(problem, s, first, rows), shape.saved[s]);
  return tile;
}

Rows RowsOf(const Problem& problem, Operand operand, const SpatialTile& tile) {
  switch (operand) {
    case Operand::kX:
    case Operand::kInput: return tile.x;
    case Operand::kZ: return tile.z;
    case Operand::kSaved: return tile.saved;
    case Operand::kResidual:
    case Operand::kOld: return RowsOf(problem, problem.sum(), tile);
    default: return tile.y;
  }
}

bool IsChannels(Axis axis) { return axis == Axis::kK || axis == Axis::kC; }

// Of tiles of a cut axis, see MakeTiling.
int64_t WholeUnits(const Problem& problem, Axis axis, int64_t length) {
  if (!IsSpatial(axis)) return length;
  const int s = SpatialIndex(axis);
  int64_t unit = DrivesInput(problem) ? problem.shape.stride[s] : 1;
  if (s == 2 && problem.Uses(Operand::kSaved)) unit = Mul(unit, kSavedUnit);
  if (problem.restores()) unit = Mul(unit, problem.pool.stride[s]);
  return RoundUp(length, unit);
}

bool TapersAt(const Tiling& tiling, Axis axis) {
  return tiling.tapered() && tiling.taper.axis == axis;
}

// Usual tiles of a tapered axis: until no more than a short one is left.
int64_t UsualTiles(const Tiling& tiling) {
  const int i = Index(tiling.taper.axis);
  const int64_t between = tiling.extent[i] - 2 * tiling.taper.length;
  return CeilDiv(std::max<int64_t>(between, 0), tiling.length[i]);
}

// What comes after y in a tile of so many rows of z.
void SetAfter(const Problem& problem, int s, int64_t length, ConvShape* tile) {
  if (problem.pool.pools()) tile->pooled[s] = length;
  const Saving saving = problem.saving();
  if (saving.what == Saved::kNothing) return;
  tile->saved[s] = saving.what == Saved::kWinners ? length : tile->out[s];
  if (s == 2) tile->saved[s] = saving.RowBytes(tile->saved[s]);
}

}  // namespace

int64_t Tiling::Count(Axis axis) const {
  const int i = Index(axis);
  if (!TapersAt(*this, axis)) return length[i] == 0 ? 0 : CeilDiv(extent[i], length[i]);
  const int64_t usual = UsualTiles(*this);
  const bool ends_short = taper.length + usual * length[i] < extent[i];
  return 1 + usual + (ends_short ? 1 : 0);
}

int64_t Tiling::Begin(Axis axis, int64_t number) const {
  const bool behind = TapersAt(*this, axis) && number > 0;
  return behind ? taper.length + (number - 1) * length[Index(axis)] : number * length[Index(axis)];
}

int64_t Tiling::Length(Axis axis, int64_t number) const {
  const bool usual = !TapersAt(*this, axis) || (number > 0 && number <= UsualTiles(*this));
  return usual ? length[Index(axis)] : taper.length;
}

int64_t Tiling::ShortTiles() const { return tapered() ? Count(taper.axis) - UsualTiles(*this) : 0; }

bool Tiling::IsShort(Axis axis, int64_t number) const {
  return TapersAt(*this, axis) && (number == 0 || number > UsualTiles(*this));
}

bool Tiling::DividesBatch() const {
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (axis != Axis::kN && Count(axis) > 1) return false;
  }
  const int64_t last = Count(Axis::kN) - 1;
  return Begin(Axis::kN, last) + Length(Axis::kN, last) == extent[Index(Axis::kN)];
}

int64_t Tiling::Tiles() const {
  int64_t tiles = 1;
  for (int i = 0; i < kAxes; ++i) tiles = Mul(tiles, Count(static_cast<Axis>(i)));
  return tiles;
}

AxisArray ExtentsOf(const Problem& problem) {
  const ConvShape& shape = problem.shape;
  const Spatial& driving = DrivesInput(problem)              ? shape.in
                           : problem.output() == Operand::kZ ? shape.pooled
                                                             : shape.out;
  const bool bias = problem.direction == Direction::kBackwardBias;
  return {shape.n, shape.g, shape.k, bias ? 1 : shape.c, driving[0], driving[1], driving[2]};
}

Tiling MakeTiling(const Problem& problem, const AxisArray& length, bool padding_as_data) {
  Tiling tiling;
  tiling.extent = ExtentsOf(problem);
  for (int i = 0; i < kAxes; ++i) {
    const int64_t least =
        problem.also.any() && IsChannels(static_cast<Axis>(i)) ? tiling.extent[i] : 1;
    tiling.length[i] =
        std::clamp<int64_t>(length[i], std::min(least, tiling.extent[i]), tiling.extent[i]);
  }
  for (int s = 0; s < 3; ++s) {
    const int i = Index(Axis::kD) + s;
    if (tiling.length[i] < tiling.extent[i]) {
      const int64_t rounded = WholeUnits(problem, static_cast<Axis>(i), tiling.length[i]);
      tiling.length[i] = std::min(rounded, tiling.extent[i]);
    }
    const bool cut = tiling.length[i] < tiling.extent[i];
    const bool uneven = problem.shape.pad_before[s] != problem.shape.pad_after[s];
    tiling.padding_as_data[s] =
        problem.direction != Direction::kBackwardBias && (cut || uneven || padding_as_data);
  }
  tiling.full_padding = DrivesInput(problem) && !padding_as_data;
  return tiling;
}

Tiling WholeTiling(const Problem& problem, bool padding_as_data) {
  return MakeTiling(problem, ExtentsOf(problem), padding_as_data);
}

Tiling Tapered(const Problem& problem, const Tiling& tiling, const Taper& taper) {
  Tiling tapered = tiling;
  tapered.taper = {};
  const int64_t length = WholeUnits(problem, taper.axis, taper.length);
  if (length <= 0 || length >= tiling.length[Index(taper.axis)]) return tapered;
  if (tapered.Count(taper.axis) <= 1) return tapered;
  tapered.taper = {taper.axis, length};
  const ConvShape usual = TileShape(problem, tapered), ends = TileShape(problem, tapered, true);
  for (int s = 0; s < 3; ++s) {  // pads are even, and so a shorter tile may hold a row more
    if (ends.in[s] > usual.in[s]) tapered.taper = {};
  }
  return tapered;
}

ConvShape TileShape(const Problem& problem, const Tiling& tiling, bool is_short) {
  ConvShape tile = problem.shape;
  AxisArray lengths = tiling.length;
  if (is_short) lengths[Index(tiling.taper.axis)] = tiling.taper.length;
  tile.n = lengths[Index(Axis::kN)];
  tile.g = lengths[Index(Axis::kG)];
  tile.k = lengths[Index(Axis::kK)];
  tile.c = lengths[Index(Axis::kC)];
  for (int s = 0; s < 3; ++s) {
    const int64_t length = lengths[Index(Axis::kD) + s];
    if (problem.direction == Direction::kBackwardBias) {
      tile.out[s] = length;
      continue;
    }
    if (!tiling.padding_as_data[s]) continue;
    int64_t& pad = tile.pad_before[s];
    pad = DrivesInput(problem) && tiling.full_padding ? FullPad(problem.shape, s, length) : 0;
    tile.pad_after[s] = pad;
    if (DrivesInput(problem)) {
      // To where the last wanted row or the last contribution ends, less what is padded.
      tile.out[s] = RowsFor(problem.shape, s, length);
      const int64_t reached = (tile.out[s] - 1) * tile.stride[s] + problem.shape.Reach(s);
      tile.in[s] = std::max(Lead(problem.shape, s) + length - pad, reached - 2 * pad);
    } else {
      const bool forward = problem.direction == Direction::kForward;
      tile.out[s] = forward ? RowsComputed(problem, s, length) : length;
      tile.in[s] = (tile.out[s] - 1) * tile.stride[s] + problem.shape.Reach(s);
      if (forward) SetAfter(problem, s, length, &tile);
    }
  }
  for (int s = 0; s < 3; ++s) {
    if (!problem.restores() || !IsCut(tiling, s)) continue;
    tile.pooled[s] = PoolBackwardRows(problem, s, 0, tile.out[s]).rows;
    tile.saved[s] = std::max<int64_t>(PoolBackwardBits(problem, s, 0, tile.out[s]).rows, 1);
  }
  return tile;
}

int64_t Box::ValidElements() const {
  int64_t elements = 1;
  for (int d = 0; d < 6; ++d) {
    elements = Mul(elements, std::max<int64_t>(valid_end[d] - valid_begin[d], 0));
  }
  return elements;
}

OperandTiles::OperandTiles(const Problem& problem, const Tiling& tiling, Operand operand,
                           const ConvShape& usual, const ConvShape& ends)
    : problem_(&problem),
      tiling_(&tiling),
      operand_(operand),
      axes_(AxesOf(problem.direction, operand)),
      whole_(problem.DimsOf(operand)),
      usual_(usual.DimsOf(operand, problem.direction)),
      ends_(ends.DimsOf(operand, problem.direction)) {}

OperandTiles::OperandTiles(const Problem& problem, const Tiling& tiling, Operand operand)
    : OperandTiles(problem, tiling, operand, TileShape(problem, tiling),
                   tiling.tapered() ? TileShape(problem, tiling, true) : ConvShape{}) {}

Range OperandTiles::RangeAt(int dimension, int64_t number) const {
  const int axis = AxisOf(dimension);
  if (axis == kNoAxis) return {0, usual_[dimension], 0, whole_[dimension]};
  const bool is_short = tiling_->IsShort(static_cast<Axis>(axis), number);
  const int64_t extent = (is_short ? ends_ : usual_)[dimension];
  if (IsSpatial(static_cast<Axis>(axis))) {
    const int s = SpatialIndex(static_cast<Axis>(axis));
    const Rows rows = RowsOf(*problem_, operand_, SpatialTileOf(*problem_, *tiling_, s, number));
    return {rows.begin, extent, rows.valid_begin, rows.valid_end};
  }
  const int64_t begin = tiling_->Begin(static_cast<Axis>(axis), number);
  return {begin, extent, begin, std::min(begin + extent, whole_[dimension])};
}

Box OperandTiles::BoxAt(const TileIndex& index) const {
  Box box;
  for (int d = 0; d < 6; ++d) {
    const int axis = AxisOf(d);
    box.Set(d, RangeAt(d, axis == kNoAxis ? 0 : index[axis]));
  }
  return box;
}

Box RegionOf(const Problem& problem, const Tiling& tiling, Operand operand,
             const TileIndex& index) {
  return OperandTiles(problem, tiling, operand).BoxAt(index);
}

}  // namespace oocdnn
