// Footprint: the bytes of the slots that a tile needs, before any engine has been asked.
//
// An estimate on the safe side: exact bytes come from the prepared engine (Executable::layout).
#pragma once

#include "model/plan.hpp"

namespace oocdnn {

// Bytes and elements of one slot of each operand, for one problem on one engine. Both never shrink
// when an extent of the tile grows, which the search prunes by.
class Footprint {
 public:
  // `fuses`: the engine finishes sums, see Fuses.
  Footprint(const Problem& problem, const EngineInfo& engine, bool fuses = false);

  // Padded elements of the operand's tile. `tile` needs n, g, k, c, in, filter and out only.
  [[nodiscard]] int64_t Elements(const ConvShape& tile, Operand operand) const;
  // Bytes of one slot, a multiple of 64. `partial`: a reduction axis is cut. Of dy with those of
  // another tile, which engines of what comes along may read in place of the slot's.
  [[nodiscard]] int64_t SlotBytes(const ConvShape& tile, Operand operand, bool partial) const;
  // Bytes of one element of the operand in its tile. `partial` also where a filter gradient has
  // several blocks.
  [[nodiscard]] int64_t ElementBytes(Operand operand, bool partial) const {
    return element_bytes_[Index(operand)][partial ? 1 : 0];
  }
  // Whether every tile of the shape stays below the 2^31 - 1 elements that engines can index.
  [[nodiscard]] bool Indexable(const ConvShape& tile) const;

 private:
  [[nodiscard]] int64_t BytesOfElement(Operand operand, bool partial) const;
  [[nodiscard]] bool SumsWide() const {
    return wide_ && problem_.direction == Direction::kBackwardFilter;
  }

  const Problem& problem_;
  bool blocked_, short_, wide_;  // see EngineInfo
  bool fuses_;
  std::array<Operand, kOperands> shaped_as_{};
  std::array<std::array<int64_t, 2>, kOperands> element_bytes_{};  // and of parts of sums
};

// Whether the tiling cuts an axis that the output, or another operand, sums over.
bool CutsReduction(const Problem& problem, const Tiling& tiling);
bool CutsReduction(const Problem& problem, const AxisArray& counts, Operand sum);
// Whether the engine does the epilogue itself, where sums are not cut into parts.
bool Fuses(const PlanRequest& request, int engine);
// Of the elements of the output's tiles; `partial`: these are parts of sums; `fuses`: see above.
DType OutTypeOf(const Problem& problem, bool partial, bool fuses);

}  // namespace oocdnn
