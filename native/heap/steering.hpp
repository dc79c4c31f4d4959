// Has PyTorch's allocator put a step's allocations where they leave few gaps.
//
// The allocator takes the smallest free block that holds a request. Where the runtime acts it can
// take free blocks itself, so that what is allocated next goes into the holes that it leaves, and
// give them back where it acts later. Which holes these are is found in simulation, one group of
// allocations after the other: nothing is taken where the allocator's own choice does no harm; else
// holes are left at the addresses that a placement of the whole step has for them. Where a group
// ends up elsewhere, the rest of the step is placed anew.
#pragma once

#include <cstdint>
#include <optional>

#include "base/status.hpp"
#include "heap/attempts.hpp"
#include "heap/frame.hpp"
#include "heap/requests.hpp"

namespace oocdnn::heap {

constexpr int64_t kWalks = 256;  // over the step, each with other random numbers

struct SteeringOptions {
  int64_t limit = 0;     // bytes that may be reserved
  uint64_t seed = 0;     // of the random numbers: the same for the same result
  double seconds = 0.0;  // at most; where they end the search, the result depends on the machine
};

// A steering of the requests, which have groups, under which no more than the limit is reserved;
// none where none was found, or the heap has no expandable segments. kInterrupted where `progress`
// ended the search.
Result<std::optional<Steering>> Steer(const Heap& heap, const Requests& requests,
                                      const SteeringOptions& options, const Progress& progress);

}  // namespace oocdnn::heap
