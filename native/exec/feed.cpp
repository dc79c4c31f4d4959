#include "exec/feed.hpp"

#include <algorithm>

namespace oocdnn {

Piece FetchedPart(const OperandStep& step) {
  Piece part{step.box.valid_begin, step.box.valid_end};
  if (step.from_slot >= 0) {
    const int d = step.roll_axis;
    part.begin[d] = std::max(part.begin[d], step.box.origin[d] + step.kept);
    part.end[d] = std::max(part.end[d], part.begin[d]);
  }
  return part;
}

Feed::Feed(Staging& staging, const Problem& problem, const Candidate& plan)
    : staging_(staging), problem_(problem), ahead_(problem, plan.tiling, plan.order, plan.depths) {
  FindNext();
}

void Feed::FindNext() {
  piece_.emplace();
  while (!cut_ || !cut_->Next(&*piece_)) {
    cut_.reset();
    if (operand_ == kOperands) {
      if (!ahead_.Next(&step_)) return piece_.reset();
      operand_ = -1;
    }
    if (++operand_ == kOperands) continue;
    const auto operand = static_cast<Operand>(operand_);
    const OperandStep& mine = step_.operand[operand_];
    if (!problem_.Reads(operand) || !mine.enter || !staging_.Serves(operand)) continue;
    cut_.emplace(staging_.CutOf(operand, FetchedPart(mine)));
  }
}

Status Feed::Advance() {
  while (piece_ && staging_.HasRoom(static_cast<Operand>(operand_))) {
    OOC_TRY(staging_.Post(static_cast<Operand>(operand_), *piece_));
    FindNext();
  }
  return {};
}

}  // namespace oocdnn
