#include "model/price/cuts.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

// What tile number `i` adds to the sums, given the one before it.
struct Share {
  int64_t extent = 0, valid = 0, rolled = 0, kept = 0;
};

Share ShareOf(const Range& range, const Range* previous) {
  Share share;
  share.extent = range.extent;
  share.valid = std::max<int64_t>(range.valid_end - range.valid_begin, 0);
  share.rolled = share.valid;
  if (previous == nullptr || previous->extent != range.extent) return share;
  share.kept = std::max<int64_t>(previous->origin + previous->extent - range.origin, 0);
  const int64_t begin = std::max(range.valid_begin, range.origin + share.kept);
  share.rolled = std::max<int64_t>(range.valid_end - begin, 0);
  return share;
}

// n terms of an arithmetic series.
int64_t Series(int64_t first, int64_t last, int64_t n) {
  return n % 2 == 0 ? Mul(Add(first, last), n / 2) : Add(Mul(first, n), Mul((last - first) / 2, n));
}

// How many of them are not 0; none is below.
int64_t Positive(int64_t first, int64_t last, int64_t n) {
  if (first > 0 && last > 0) return n;
  return first > 0 || last > 0 ? n - 1 : 0;
}

// The inverse of an odd number modulo 2^64, by Newton's steps: each doubles the bits that are
// right, of which there are three at first.
uint64_t Inverse(uint64_t odd) {
  uint64_t inverse = odd;
  for (int bits = 3; bits < 64; bits *= 2) inverse *= 2 - odd * inverse;
  return inverse;
}

// How many of them are multiples of `piece`, a power of two; 0 is one.
int64_t Multiples(int64_t first, int64_t last, int64_t n, int64_t piece) {
  const int64_t step = n > 1 ? (last - first) / (n - 1) : 0;
  const int64_t common = std::gcd(step, piece);
  if (first % common != 0) return 0;
  const int64_t period = piece / common;  // from one to the next
  if (period == 1) return n;
  const uint64_t before =
      Inverse(static_cast<uint64_t>(step / common)) * static_cast<uint64_t>(-(first / common));
  const auto one = static_cast<int64_t>(before & static_cast<uint64_t>(period - 1));
  return one < n ? (n - 1 - one) / period + 1 : 0;
}

// Sums over the tiles of one axis. Where neither end of the box crosses an end of the tensor,
// shares are linear in the number of the tile, so stretches of alike tiles are summed at once: a
// long axis in short tiles costs little more than a short one.
class Summation {
 public:
  Summation(const Problem& problem, const Tiling& tiling, Operand operand, Axis axis,
            const ConvShape& usual, const ConvShape& ends)
      : tiles_(problem, tiling, operand, usual, ends),
        dimension_(DimensionOf(problem, operand, axis)),
        piece_(PieceOf(problem, operand, dimension_)),
        count_(tiling.Count(axis)) {}

  CutRows Run() {
    CutRows rows{dimension_, 0, {0, 0, 0}, {0, 0, 0}, 0};
    for (int64_t i = 0; i < count_;) {
      const int64_t n = Stretch(i);
      const Share first = ShareAt(i), last = n == 1 ? first : ShareAt(i + n - 1);
      rows.extents = Add(rows.extents, Series(first.extent, last.extent, n));
      Count(first.valid, last.valid, n, &rows.valid);
      Count(first.rolled, last.rolled, n, &rows.rolled);
      rows.kept = Add(rows.kept, Series(first.kept, last.kept, n));
      i += n;
    }
    return rows;
  }

 private:
  // Which ends of the box are the tensor's.
  struct Kind {
    bool empty, before, begins, ends;
    bool operator==(const Kind&) const = default;
  };

  void Count(int64_t first, int64_t last, int64_t n, StepCount* fetched) const {
    fetched->all = Add(fetched->all, Series(first, last, n));
    fetched->filled += Positive(first, last, n);
    fetched->partial += n - Multiples(first, last, n, piece_);
  }

  [[nodiscard]] Range RangeOf(int64_t i) const { return tiles_.RangeAt(dimension_, i); }

  [[nodiscard]] Share ShareAt(int64_t i) const {
    if (i == 0) return ShareOf(RangeOf(0), nullptr);
    const Range previous = RangeOf(i - 1);
    return ShareOf(RangeOf(i), &previous);
  }

  [[nodiscard]] Kind KindAt(int64_t i) const {
    const Range range = RangeOf(i);
    return {range.valid_end <= range.valid_begin, range.valid_begin == 0,
            range.valid_begin == range.origin, range.valid_end == range.origin + range.extent};
  }

  // How many tiles from `i` on are alike. The first two and the last stand alone: they have no
  // neighbour that is alike, may be short, clipped by the end of the axis, or moved back from it.
  [[nodiscard]] int64_t Stretch(int64_t i) const {
    const int64_t most = count_ - 1 - i;
    if (i < 2 || most < 1) return 1;
    const Kind kind = KindAt(i);
    if (kind != KindAt(i - 1)) return 1;
    if (KindAt(i + most - 1) == kind) return most;
    int64_t alike = 1, stride = 1;
    while (alike + stride <= most && KindAt(i + alike + stride - 1) == kind) {
      alike += stride;
      stride *= 2;
    }
    for (; stride > 0; stride /= 2) {
      if (alike + stride <= most && KindAt(i + alike + stride - 1) == kind) alike += stride;
    }
    return alike;
  }

  OperandTiles tiles_;
  int dimension_;
  int64_t piece_;
  int64_t count_;
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

AxisCut CutOf(const Problem& problem, const Tiling& tiling, Axis axis) {
  AxisCut cut;
  cut.axis = axis;
  cut.length = tiling.length[Index(axis)];
  cut.count = tiling.Count(axis);
  const ConvShape usual = TileShape(problem, tiling);
  const ConvShape ends = tiling.tapered() ? TileShape(problem, tiling, true) : ConvShape{};
  if (IsSpatial(axis)) {
    cut.in = usual.in[SpatialIndex(axis)];
    cut.out = usual.out[SpatialIndex(axis)];
    cut.pooled = usual.pooled[SpatialIndex(axis)];
    cut.saved = usual.saved[SpatialIndex(axis)];
  }
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!problem.Has(operand) || !Moves(problem, operand, axis)) continue;
    cut.rows[i] = Summation(problem, tiling, operand, axis, usual, ends).Run();
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
  shape->pooled[SpatialIndex(cut.axis)] = cut.pooled;
  shape->saved[SpatialIndex(cut.axis)] = cut.saved;
}

AxisArray CountsOf(const Cuts& cuts) {
  AxisArray counts{};
  for (int i = 0; i < kAxes; ++i) counts[i] = cuts[i]->count;
  return counts;
}

int64_t StepsOf(const Cuts& cuts) {
  int64_t steps = 1;
  for (const AxisCut* cut : cuts) steps = Mul(steps, cut->count);
  return steps;
}

AxisArray CountsOf(const Tiling& tiling) {
  AxisArray counts{};
  for (int i = 0; i < kAxes; ++i) counts[i] = tiling.Count(static_cast<Axis>(i));
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
