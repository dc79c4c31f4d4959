// Has PyTorch's allocator give unused memory back in the midst of a step, where its gaps would pass
// a limit. That costs time: the device catches up with the host, and pages are mapped anew. So it
// is for steps that nothing else keeps to the limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "heap/requests.hpp"

namespace oocdnn::heap {

constexpr size_t kMostTrims = 32;  // in a step: more would take longer than they are worth

// One point at which unused memory is given back.
struct Trim {
  int64_t group = 0;  // after the group's leading ends
  int64_t bytes = 0;  // that are given back there, in the step where they are most
};

struct Trimming {
  std::vector<Trim> trims;  // in order
  int64_t reserved = 0;     // most bytes taken from the driver
};

// Points for the requests, which have groups: before each passing of the limit the latest one. None
// where one of these does not serve, as where what is in use passes the limit with the gaps that
// stay, or more than kMostTrims are needed.
Result<std::optional<Trimming>> FindTrims(const Heap& heap, const Requests& requests,
                                          int64_t limit);

}  // namespace oocdnn::heap
