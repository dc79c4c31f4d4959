// Chains: programs of forward convolutions, each with its pool. Each link reads the result of the
// previous one; the residual that it adds may be the result of an earlier link, or x. A chain runs
// depth first: a tile of the last result is finished from x before the next one begins, and tensors
// between links never leave the device.
//
// A tile is a range of samples, and of rows of the last result where those are cut too. The rows of
// inner tensors that neighbouring tiles share are computed in each of them, or in a sweep along an
// axis kept for the next. Where the last link saves for its gradients, tiles are whole samples.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "geom/chain_axis.hpp"
#include "geom/program.hpp"
#include "geom/schedule.hpp"

namespace oocdnn {

// Where a link's residual comes from: the result of the link of that number, or one of these.
constexpr int64_t kFromX = -1;        // what the first link reads
constexpr int64_t kFromOutside = -2;  // the caller, if there is a residual

// The program of such links, in the order in which they run; `residual`: by link, where it comes
// from. kInvalidProblem where they do not go together, kUnsupported for what a chain does not
// compute.
Result<Program> MakeChain(const std::vector<Problem>& links, const std::vector<int64_t>& residual);

// The source of a link's residual: the number of a link, kFromX or kFromOutside.
int64_t ResidualOf(const Program& chain, size_t link);

// Links [begin, end) as they run depth first: all but the last write a z, which is the next one's
// x. A residual from the link before them is from x there, one from links before that from outside.
Program SectionOf(const Program& chain, size_t begin, size_t end);

// Why such links cannot run depth first, kUnsupported: a later link reads what one of them leaves
// for the next, or there are strides between a residual and its source.
Status CheckDepthFirst(const Program& chain, size_t begin, size_t end);

// The rows of a link's tensors on one axis.
struct LinkRows {
  RowSpan x, y, z;
  // In a sweep: the first rows of x, which are those of the tile before from this one on.
  int64_t kept = 0, from = 0;
};

// The halos of a chain, which are worked out once for all tilings that cut an axis alike. Not from
// two threads at once.
class ChainHalos {
 public:
  explicit ChainHalos(Program chain);

  [[nodiscard]] const Program& chain() const { return chain_; }
  // By link: the rows for these of the last result, with padding as data. Lives as long as this.
  const std::vector<LinkRows>& RowsFor(int axis, int64_t begin, int64_t length);
  // By link: where the axis is whole. `pads`: which convolutions are given their padding.
  [[nodiscard]] std::vector<LinkRows> WholeRows(int axis, const std::vector<bool>& pads) const;
  // The same as RowsFor of a tile of a sweep, which begins LeadOf before row 0.
  const std::vector<LinkRows>& SweptRowsFor(int axis, int64_t begin, int64_t length);
  [[nodiscard]] int64_t LeadOf(int axis, int64_t length) const;
  // Whether such tiles can sweep along the last axis that is cut: nothing is added of inner
  // tensors, of which a tile has other rows then, and what is added of x the tile of that has.
  [[nodiscard]] bool Sweeps(const Tiling& tiling) const;

 private:
  using Known = std::map<std::pair<int64_t, int64_t>, std::vector<LinkRows>>;

  const Program chain_;
  std::array<std::vector<AxisLayer>, 3> layers_;  // of each link the convolution and its pool
  std::vector<Skip> skips_;
  std::array<Known, 3> known_, swept_;
};

// The tiles of a chain, all links of a tile in one step.
class ChainTiles {
 public:
  // `tiling` is of the last link, and cuts nothing but its batch and rows. `pads`, by link: whether
  // its convolution may be given padding; else padding is data. `sweeps`: along the last axis that
  // is cut, which must be one along which tiles can.
  ChainTiles(std::shared_ptr<ChainHalos> halos, const Tiling& tiling, std::vector<bool> pads,
             bool sweeps);

  [[nodiscard]] const Program& chain() const { return halos_->chain(); }
  // With the rows before the first that a sweep begins at.
  [[nodiscard]] const Tiling& tiling() const { return tiling_; }
  [[nodiscard]] int64_t Steps() const { return tiling_.Tiles(); }
  // Whether tiles are whole samples.
  [[nodiscard]] bool DividesBatch() const;
  // The convolution that a link is in a usual tile, or a short one.
  [[nodiscard]] ConvShape ShapeOf(size_t link, bool is_short) const;
  // Of it, the part of x that is kept from tile to tile; nothing where none is.
  [[nodiscard]] std::optional<ConvShape> KeptOf(size_t link, bool is_short) const;
  // Whether a link's tile of z, with the zeros that the next link wants around it, has the rows of
  // y, in every tile.
  [[nodiscard]] bool ZMatchesY(size_t link) const;
  // The spatial axis along which tiles sweep; -1 where they do not.
  [[nodiscard]] int sweep() const { return sweep_; }
  // What step `number` does with a link, x and the last result in rings of so many slots. What
  // moves with the tiles enters at every step, the rest at the first. Of an inner x whose tiles
  // keep rows, `from_slot` is 0 where there is a tile before.
  [[nodiscard]] Step StepOf(size_t link, int64_t number, int ring) const;
  // With one operand of it, which it uses.
  [[nodiscard]] OperandStep StepOf(size_t link, Operand operand, int64_t number, int ring) const;
  [[nodiscard]] TileIndex IndexOf(int64_t number) const;

 private:
  [[nodiscard]] bool Pads(size_t link, int axis) const;
  [[nodiscard]] const std::vector<LinkRows>& RowsAt(int axis, int64_t number) const;
  void Keep(size_t link, const TileIndex& index, int64_t number, int ring, OperandStep* x) const;
  [[nodiscard]] Box BoxOf(size_t link, Operand operand, const TileIndex& index) const;

  std::shared_ptr<ChainHalos> halos_;
  Tiling tiling_;
  std::vector<bool> pads_;
  int sweep_ = -1;
  int64_t lead_ = 0;
  std::array<std::vector<LinkRows>, 3> whole_;  // by axis, of those that are not cut
};

}  // namespace oocdnn
