// Division of a batch into micro-batches: they run one after the other in one workspace, so that an
// engine that is faster, but needs more workspace per sample, fits a limit (µ-cuDNN's workspace
// reuse).
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"

namespace oocdnn {

// One measured way to run a convolution on `samples` of its batch.
struct MicroBatch {
  int64_t samples = 1;          // positive
  double seconds = 0.0;         // finite, not negative
  int64_t workspace_bytes = 0;  // not negative
};

// `count` parts of a batch that all run in the same way: an index into the choices.
struct Parts {
  int64_t choice = 0;
  int64_t count = 0;
};

// A batch in parts, those of most samples first. The very last part may hold fewer samples than its
// choice was measured for, and counts as a full one all the same. No part could be left out.
struct Division {
  double seconds = 0.0;         // the sum over the parts
  int64_t workspace_bytes = 0;  // of the part that needs most
  std::vector<Parts> parts;
};

// The sizes of micro-batches worth measuring. The values are those of the C API.
enum class BatchPolicy : int { kUndivided = 0, kPowersOfTwo = 1, kAll = 2 };

// Batches of more samples are refused as unsupported: a division takes time in proportion to
// samples * choices, and memory in proportion to samples.
constexpr int64_t kMostSamples = int64_t{1} << 20;

// Smallest first, the batch itself always among them; none for an empty batch.
Result<std::vector<int64_t>> MicroBatchSizes(BatchPolicy policy, int64_t batch);

// All divisions of which none is at least as good as another in both seconds and bytes, fastest
// first. Exact: whatever multiset of choices holds the batch, one of these is as fast with as few
// bytes, to within the rounding of sums of seconds. An empty batch has one division, without parts.
// kInvalidProblem where there is no choice, or one is not as MicroBatch says.
Result<std::vector<Division>> ParetoDivisions(const std::vector<MicroBatch>& choices,
                                              int64_t batch);

// The same among the divisions whose parts are all one choice, which is what a plan carries out.
Result<std::vector<Division>> EvenDivisions(const std::vector<MicroBatch>& choices, int64_t batch);

// The fastest division whose workspace is at most `limit` bytes. kOutOfMemory where there is none,
// with the least limit that works as its detail().
Result<Division> DivideBatch(const std::vector<MicroBatch>& choices, int64_t batch, int64_t limit);

}  // namespace oocdnn
