// ChainFloors: what no section of a chain's links undercuts, so that many need not be searched for.
#pragma once

#include <vector>

#include "model/plan.hpp"

namespace oocdnn {

// `links`: a request for each by itself, with an engine.
class ChainFloors {
 public:
  ChainFloors(const std::vector<PlanRequest>& links, const Profile& profile);

  // Of links [begin, end), depth first: all their arithmetic, or the wires' time at either end,
  // where x enters and the last result leaves. What else enters and leaves in between counts
  // nothing.
  [[nodiscard]] double Of(size_t begin, size_t end) const;

 private:
  std::vector<double> compute_;      // of all links before each
  std::vector<double> head_, tail_;  // of each as the first of a section, and as the last
};

}  // namespace oocdnn
