// The GPUs over whose links a GPU's copies go, too.
#pragma once

#include <cstdint>
#include <vector>

namespace oocdnn {

struct BorrowedGpus {
  std::vector<int> ordinals;
  bool needed = false;      // one that cannot be had is an error; else a warning, and is left out
  int64_t piece_bytes = 0;  // of the largest piece of a copy that goes over several links
};

}  // namespace oocdnn
