// Attempts: a search that is tried over and over with other random numbers, on several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/status.hpp"
#include "heap/deadline.hpp"

namespace oocdnn::heap {

// Told of attempts that are done, every few milliseconds on the calling thread; false ends them.
using Progress = std::function<bool(int64_t attempts)>;

// True if the attempt of this number succeeds. It ends soon after its deadline.
using Attempt = std::function<Result<bool>(int64_t number, Deadline* deadline)>;

// The first number below `count` whose attempt succeeds, which does not depend on the number of
// threads where the time suffices and none fails; none where none succeeds within `seconds`. Where
// none succeeds, the error of one that failed. kInterrupted where `progress` ended them.
Result<std::optional<int64_t>> FirstOf(int64_t count, double seconds, const Progress& progress,
                                       const Attempt& attempt);

}  // namespace oocdnn::heap
