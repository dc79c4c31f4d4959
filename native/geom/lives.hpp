// Blocks that share one region of memory, because not all of them are needed at the same time.
#pragma once

#include <cstdint>
#include <vector>

namespace oocdnn {

// A block that is needed from one moment to another, both included.
struct Life {
  int64_t bytes = 0;
  int64_t from = 0, until = 0;
  int64_t offset = 0;  // in the region
};

// Places the blocks: those that are needed at the same time overlap nowhere, and each begins at a
// multiple of `alignment`. Returns the bytes of the region; the largest block's where no two are
// needed at the same time.
int64_t Pack(std::vector<Life>* lives, int64_t alignment);

}  // namespace oocdnn
