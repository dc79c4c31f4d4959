// Feed: which parts of the inputs a schedule fetches, posted to staging in the order in which the
// tile loop takes them, as far ahead as there are slabs.
#pragma once

#include <optional>

#include "exec/staging.hpp"
#include "geom/schedule.hpp"
#include "model/plan.hpp"

namespace oocdnn {

// The part of a step's box that crosses the wire: what is valid and has not been kept on the
// device. Empty where begin >= end in a dimension.
[[nodiscard]] Piece FetchedPart(const OperandStep& step);

class Feed {
 public:
  // All must outlive this.
  Feed(Staging& staging, const Problem& problem, const Candidate& plan);

  // Posts what there is room for. To be called at the beginning and whenever a piece was taken.
  Status Advance();

 private:
  // Finds the next piece that is staged; none behind the last.
  void FindNext();

  Staging& staging_;
  const Problem& problem_;
  Schedule ahead_;
  Step step_;
  int operand_ = kOperands;  // of step_
  std::optional<Cut> cut_;   // of that operand's box
  std::optional<Piece> piece_;
};

}  // namespace oocdnn
