// The GPUs that lend a context their links, as a list of names.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"

namespace oocdnn {

// The ordinals in "cuda:1,cuda:2"; a name may be followed by the bytes that the GPU lends to
// training, as in OOCDNN_BORROW. kInvalidProblem where the text is something else, or names a GPU
// twice.
Result<std::vector<int>> ParseBorrowed(const std::string& text);

// Those of the variable that are for a device of this name: none for the CPU or
// several devices, and not itself.
std::vector<int> BorrowedFor(const std::string& device, std::vector<int> ordinals);

// Bytes of the largest piece of a copy that goes over several links, by its variable.
Result<int64_t> BorrowedPiece();

}  // namespace oocdnn
