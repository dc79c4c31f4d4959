// Tiling: how a problem is cut, and which box of each operand a tile needs.
//
// The seven axes that can be cut. On the spatial axes a tile is a range of the *driving* tensor:
// the rows of y (forward, backward filter, backward bias), of z where y is pooled, or of dx
// (backward data). Rows of y in the windows of two tiles are computed in both.
//
// All tiles of a tiling have one shape, but for those at the ends of a tapered axis, which have
// another. The last tile of an axis may reach past the end; what lies outside is zero-filled on the
// way in and left out on the way back. Backward filter moves the last spatial tile back instead,
// and zero-fills the dy rows that another tile has already used, so that a NaN in x meets only the
// dw it would have met in one piece.
#pragma once

#include <array>
#include <cstdint>

#include "geom/problem.hpp"

namespace oocdnn {

enum class Axis : int { kN = 0, kG = 1, kK = 2, kC = 3, kD = 4, kH = 5, kW = 6 };
constexpr int kAxes = 7;
constexpr int Index(Axis axis) { return static_cast<int>(axis); }
constexpr bool IsSpatial(Axis axis) { return Index(axis) >= Index(Axis::kD); }
constexpr int SpatialIndex(Axis axis) { return Index(axis) - Index(Axis::kD); }
const char* Name(Axis axis);  // "N", "groups", "K", "C", "D", "H", "W"

using AxisSet = unsigned;  // a bit each
constexpr AxisSet BitOf(int axis) { return 1U << axis; }

using AxisArray = std::array<int64_t, kAxes>;

using TileIndex = AxisArray;  // the number of the tile on each axis

// A cut axis whose first tile is short, so that a pipeline is filled and drained cheaply; and its
// last too, where no more than that is left behind tiles of the usual length.
struct Taper {
  Axis axis = Axis::kN;
  int64_t length = 0;  // of a short tile, below the usual one; 0: there is none

  bool operator==(const Taper&) const = default;
};

struct Tiling {
  AxisArray extent{};  // the whole iteration space
  AxisArray length{};  // of a usual tile; 1 <= length <= extent (0 where the extent is 0)
  // Spatial axes whose padding is data: slots hold the zero rows. Always true for a cut axis and
  // for one with asymmetric padding.
  std::array<bool, 3> padding_as_data{};
  // On those a tile's convolution has pad 0, but for backward data if this is set: then it is
  // padded up to its filter's reach, so that it computes no row of dx that another tile has.
  bool full_padding = false;
  Taper taper;

  bool operator==(const Tiling&) const = default;
  [[nodiscard]] int64_t Count(Axis axis) const;
  [[nodiscard]] int64_t Tiles() const;  // product of the counts (saturating)
  // Of the tile with that number on the axis: where it begins, and its length.
  [[nodiscard]] int64_t Begin(Axis axis, int64_t number) const;
  [[nodiscard]] int64_t Length(Axis axis, int64_t number) const;
  [[nodiscard]] bool tapered() const { return taper.length > 0; }
  // Of the tiles of the tapered axis, those that are short; none where there is none.
  [[nodiscard]] int64_t ShortTiles() const;
  [[nodiscard]] bool IsShort(Axis axis, int64_t number) const;
  [[nodiscard]] bool IsShort(const TileIndex& index) const {
    return IsShort(taper.axis, index[Index(taper.axis)]);
  }
  // Whether tiles are whole samples: nothing but the batch is cut, and every sample is in one tile.
  [[nodiscard]] bool DividesBatch() const;
};

// The extents of the iteration space of `problem`.
AxisArray ExtentsOf(const Problem& problem);

// A tiling with these tile lengths. Lengths are clamped to [1, extent]; on cut spatial axes of
// backward data they are rounded up to a multiple of the stride, so that all tiles have one phase,
// where dy is restored also of the pool's, and on a cut axis along which bits lie so that those of
// a tile begin with a whole byte. Where other gradients come along K and C are whole (see Also).
// `padding_as_data` asks for it on every spatial axis, and for pad 0 (engines that take no other).
Tiling MakeTiling(const Problem& problem, const AxisArray& length, bool padding_as_data);
Tiling WholeTiling(const Problem& problem, bool padding_as_data);
// The tiling with short tiles of this length at the ends of a cut axis; rounded up as those of
// MakeTiling are. Without a taper where the axis is not cut, or the length not below the usual one.
Tiling Tapered(const Problem& problem, const Tiling& tiling, const Taper& taper);

// The convolution that a usual tile is, or a short one, with symmetric pads. No extent of the short
// one is larger.
ConvShape TileShape(const Problem& problem, const Tiling& tiling, bool is_short = false);

// The axes that move `operand`, and whether `axis` does; one that does not move the output is a
// reduction.
AxisSet MovedBy(const Problem& problem, Operand operand);
bool Moves(const Problem& problem, Operand operand, Axis axis);
bool IsReduction(const Problem& problem, Axis axis);

// One dimension of a box, see there.
struct Range {
  int64_t origin = 0, extent = 0, valid_begin = 0, valid_end = 0;
};

// A box of a tensor in its six dimensions. `origin` may be negative and origin + extent may pass
// the end; only [valid_begin, valid_end) (tensor coordinates) holds elements, the rest is zero on
// the way in and is not written on the way back.
struct Box {
  Dims origin{}, extent{}, valid_begin{}, valid_end{};

  bool operator==(const Box&) const = default;
  [[nodiscard]] int64_t ValidElements() const;
  void Set(int dimension, const Range& range) {
    origin[dimension] = range.origin;
    extent[dimension] = range.extent;
    valid_begin[dimension] = range.valid_begin;
    valid_end[dimension] = range.valid_end;
  }
};

// The box of `operand` that tile `index` reads or writes. Its extent is that of the tile's shape,
// TileShape(...).DimsOf(operand) (backward data's dx box may be wider than what it drains).
// Of what is saved a tile drains each element once, whatever it shares with others on the device.
// Of x, where dw comes along, those rows are valid that are the tile's own of dx: each is in one
// tile, which has all the rows of dy that it meets.
Box RegionOf(const Problem& problem, const Tiling& tiling, Operand operand, const TileIndex& index);

// The boxes of one operand in all tiles, with what these have in common looked up once; dimension
// by dimension, since each follows from the tile's number on one axis.
class OperandTiles {
 public:
  // The problem and the tiling must outlive this.
  OperandTiles(const Problem& problem, const Tiling& tiling, Operand operand);
  // `usual`, `ends`: the shape of a usual tile, and of a short one, where these are known; of a
  // tiling that is not tapered the latter says nothing.
  OperandTiles(const Problem& problem, const Tiling& tiling, Operand operand,
               const ConvShape& usual, const ConvShape& ends);

  // The index of the axis that moves the dimension; kAxes where none does.
  [[nodiscard]] int AxisOf(int dimension) const { return axes_[static_cast<size_t>(dimension)]; }
  // Of the tile with that number on the axis.
  [[nodiscard]] Range RangeAt(int dimension, int64_t number) const;
  [[nodiscard]] Box BoxAt(const TileIndex& index) const;

 private:
  const Problem* problem_;
  const Tiling* tiling_;
  Operand operand_;
  std::array<int, 6> axes_;
  Dims whole_, usual_, ends_;
};

}  // namespace oocdnn
