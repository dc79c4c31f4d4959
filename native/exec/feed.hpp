// Feed: which parts of the inputs a schedule fetches, posted to staging in the order in which the
// tile loop takes them, as far ahead as there are slabs.
#pragma once

#include <optional>
#include <vector>

#include "exec/staging.hpp"
#include "exec/walk.hpp"

namespace oocdnn {

// The part of a step's box that crosses the wire: what is valid and has not been kept on the
// device. Empty where begin >= end in a dimension.
[[nodiscard]] Piece FetchedPart(const OperandStep& step);

class Feed {
 public:
  // All must outlive this.
  Feed(Staging& staging, const Work& work);

  // Posts what there is room for. To be called at the beginning and whenever a piece was taken.
  Status Advance();

 private:
  // Finds the next piece that is staged; none behind the last.
  void FindNext();

  Staging& staging_;
  const Work& work_;
  Walk ahead_;
  std::vector<Step> steps_;
  size_t number_ = 0;       // of a lane; behind the last: the step has no more
  std::optional<Cut> cut_;  // of that operand's box
  std::optional<Piece> piece_;
};

}  // namespace oocdnn
