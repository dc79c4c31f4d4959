// Packing of blocks with limited lifetimes into one region of memory.
#pragma once

#include <cstdint>
#include <vector>

namespace oocdnn {

// A block in use from one moment to another, both included.
struct Lifetime {
  int64_t bytes = 0;
  int64_t from = 0, until = 0;
  int64_t offset = 0;  // in the region
};

// Assigns offsets: blocks in use at the same time do not overlap, and each offset is a multiple of
// `alignment`. Returns the bytes of the region, which are those of the largest block if no two are
// in use at the same time.
int64_t Pack(std::vector<Lifetime>* lifetimes, int64_t alignment);

}  // namespace oocdnn
