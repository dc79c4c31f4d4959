#include "exec/feed.hpp"

#include <algorithm>
#include <utility>

namespace oocdnn {
namespace {

// Without any, the walk to the next piece would go through the whole schedule.
bool StagesInputs(const Staging& staging, const Work& work) {
  for (size_t number = 0, end = LaneNumber(work.nodes.size(), {}); number < end; ++number) {
    const auto operand = static_cast<Operand>(number % kOperands);
    const bool reads = work.nodes[number / kOperands]->problem.Reads(operand);
    if (reads && staging.Serves(number)) return true;
  }
  return false;
}

}  // namespace

Piece FetchedPart(const OperandStep& step) {
  Piece part{step.box.valid_begin, step.box.valid_end};
  if (step.from_slot >= 0) {
    const int d = step.roll_axis;
    part.begin[d] = std::max(part.begin[d], step.box.origin[d] + step.kept);
    part.end[d] = std::max(part.end[d], part.begin[d]);
  }
  return part;
}

Feed::Feed(Staging& staging, const Work& work)
    : staging_(staging), work_(work), ahead_(work), number_(LaneNumber(work.nodes.size(), {})) {
  if (StagesInputs(staging, work)) FindNext();
}

void Feed::FindNext() {
  const size_t end = LaneNumber(work_.nodes.size(), {});
  piece_.emplace();
  while (!cut_ || !cut_->Next(&*piece_)) {
    if (std::exchange(cut_, std::nullopt)) ++number_;
    if (number_ == end) {
      if (!ahead_.Next(&steps_)) return piece_.reset();
      number_ = 0;
    }
    for (; number_ < end && !cut_; ++number_) {
      const auto operand = static_cast<Operand>(number_ % kOperands);
      const size_t link = number_ / kOperands;
      const OperandStep& mine = steps_[link].operand[Index(operand)];
      const bool reads = work_.nodes[link]->problem.Reads(operand);
      if (!reads || !mine.enter || !staging_.Serves(number_)) continue;
      cut_.emplace(staging_.CutOf(number_, FetchedPart(mine)));
      break;
    }
  }
}

Status Feed::Advance() {
  while (piece_ && staging_.HasRoom(number_)) {
    OOC_TRY(staging_.Post(number_, *piece_));
    FindNext();
  }
  return {};
}

}  // namespace oocdnn
