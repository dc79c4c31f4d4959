#include "model/cuts.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/checked.hpp"
#include "model/rows.hpp"

namespace oocdnn {
namespace {

struct Range {
  int64_t origin = 0, extent = 0, begin = 0, end = 0;  // begin and end of what is valid
};

// What tile number `i` adds to the sums, given the one before it.
struct Share {
  int64_t valid = 0, rolled = 0, kept = 0;
  bool operator==(const Share&) const = default;
};

Share ShareOf(const Range& range, const Range* previous) {
  Share share;
  share.valid = std::max<int64_t>(range.end - range.begin, 0);
  share.rolled = share.valid;
  if (previous == nullptr) return share;
  share.kept = std::max<int64_t>(previous->origin + previous->extent - range.origin, 0);
  const int64_t begin = std::max(range.begin, range.origin + share.kept);
  share.rolled = std::max<int64_t>(range.end - begin, 0);
  return share;
}

// Sums over the tiles of one axis. Tiles in the middle are alike, so the walk from either end stops
// at the first whose rows are all valid; a long axis in short tiles costs no more than a short one.
class Summation {
 public:
  Summation(const Problem& problem, const Tiling& tiling, Operand operand, Axis axis)
      : problem_(problem),
        tiling_(tiling),
        operand_(operand),
        axis_(axis),
        dimension_(DimensionOf(problem, operand, axis)),
        like_output_(ShapedAs(problem, operand) == problem.output()) {}

  CutRows Run(int64_t count) {
    CutRows rows{dimension_, RangeOf(0).extent, 0, 0, 0};
    int64_t first = 0;
    while (first < count && !Regular(first)) Put(ShareAt(first++), 1, &rows);
    int64_t last = count;
    while (last > first && !Regular(last - 1)) Put(ShareAt(--last), 1, &rows);
    if (last > first) Put(ShareAt(first), last - first, &rows);
    return rows;
  }

 private:
  [[nodiscard]] Range RangeOf(int64_t i) const {
    TileIndex index{};
    index[Index(axis_)] = i;
    const Box box = RegionOf(problem_, tiling_, operand_, index);
    return {box.origin[dimension_], box.extent[dimension_], box.valid_begin[dimension_],
            box.valid_end[dimension_]};
  }

  [[nodiscard]] Share ShareAt(int64_t i) const {
    if (i == 0) return ShareOf(RangeOf(0), nullptr);
    const Range previous = RangeOf(i - 1);
    return ShareOf(RangeOf(i), &previous);
  }

  // In the middle of the tensor: a neighbour on either side, no clipped row, no moved tile. An
  // output's box may be wider than what is valid of it, which only the last tile clips.
  [[nodiscard]] bool Regular(int64_t i) const {
    if (i == 0 || i + 1 >= tiling_.Count(axis_)) return false;
    const Range before = RangeOf(i - 1), here = RangeOf(i), after = RangeOf(i + 1);
    const bool even = here.origin - before.origin == after.origin - here.origin;
    const bool whole = here.begin == here.origin && here.end == here.origin + here.extent;
    return even && (whole || like_output_);
  }

  static void Put(const Share& share, int64_t times, CutRows* rows) {
    rows->valid = Add(rows->valid, Mul(share.valid, times));
    rows->rolled = Add(rows->rolled, Mul(share.rolled, times));
    rows->kept = Add(rows->kept, Mul(share.kept, times));
  }

  const Problem& problem_;
  const Tiling& tiling_;
  Operand operand_;
  Axis axis_;
  int dimension_;
  bool like_output_;
};

// Channels of a cut axis: whole blocks of 16 unless they would waste a tenth of the work.
void PutChannels(int64_t extent, int64_t length, std::vector<int64_t>* lengths) {
  const int64_t rounded = RoundUp(length, 16);
  const int64_t padded = Mul(CeilDiv(extent, rounded), rounded);
  const bool fits = length >= 16 && rounded < extent;
  if (fits) lengths->push_back(rounded);
  if (!fits || padded > extent + extent / 10) lengths->push_back(length);
}

std::vector<int64_t> Sorted(std::vector<int64_t> lengths) {
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

// The length that MakeTiling makes of this one.
int64_t Normal(const Problem& problem, Axis axis, int64_t length) {
  AxisArray lengths = ExtentsOf(problem);
  lengths[Index(axis)] = length;
  return MakeTiling(problem, lengths, false).length[Index(axis)];
}

}  // namespace

Operand RollingOperand(const Problem& problem) {
  return problem.direction == Direction::kBackwardData ? Operand::kY : Operand::kX;
}

AxisCut CutOf(const Problem& problem, const Tiling& tiling, Axis axis) {
  AxisCut cut;
  cut.axis = axis;
  cut.length = tiling.length[Index(axis)];
  cut.count = tiling.Count(axis);
  if (IsSpatial(axis)) {
    const ConvShape tile = TileShape(problem, tiling);
    cut.in = tile.in[SpatialIndex(axis)];
    cut.out = tile.out[SpatialIndex(axis)];
  }
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Uses(operand) || !Moves(problem, operand, axis)) continue;
    cut.rows[i] = Summation(problem, tiling, operand, axis).Run(cut.count);
  }
  return cut;
}

void SetExtents(const AxisCut& cut, ConvShape* shape) {
  switch (cut.axis) {
    case Axis::kN: shape->n = cut.length; return;
    case Axis::kG: shape->g = cut.length; return;
    case Axis::kK: shape->k = cut.length; return;
    case Axis::kC: shape->c = cut.length; return;
    default: break;
  }
  shape->in[SpatialIndex(cut.axis)] = cut.in;
  shape->out[SpatialIndex(cut.axis)] = cut.out;
}

AxisArray CountsOf(const Cuts& cuts) {
  AxisArray counts{};
  for (int i = 0; i < kAxes; ++i) counts[i] = cuts[i]->count;
  return counts;
}

ConvShape ShapeOf(const Problem& problem, const Cuts& cuts) {
  ConvShape shape = problem.shape;
  for (const AxisCut* cut : cuts) SetExtents(*cut, &shape);
  return shape;
}

std::vector<int64_t> UsualLengths(const Problem& problem, Axis axis, double growth) {
  const int64_t extent = ExtentsOf(problem)[Index(axis)];
  std::vector<int64_t> lengths{extent};
  int64_t pieces = 2;
  while (pieces < extent) {
    const int64_t length = Normal(problem, axis, CeilDiv(extent, pieces));
    if (axis == Axis::kK || axis == Axis::kC) {
      PutChannels(extent, length, &lengths);
    } else {
      lengths.push_back(length);
    }
    const auto next = static_cast<int64_t>(std::floor(static_cast<double>(pieces) * growth));
    pieces = std::max(pieces + 1, next);
  }
  if (extent > 1) lengths.push_back(Normal(problem, axis, 1));
  return Sorted(std::move(lengths));
}

std::vector<int64_t> AllLengths(const Problem& problem, Axis axis) {
  const int64_t extent = ExtentsOf(problem)[Index(axis)];
  std::vector<int64_t> lengths{extent};
  for (int64_t length = 1; length < extent; ++length) {
    lengths.push_back(Normal(problem, axis, length));
  }
  return Sorted(std::move(lengths));
}

}  // namespace oocdnn
