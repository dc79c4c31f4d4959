// The GPUs that lend a context their links, as a list of names.
#pragma once

#include <string>

#include "base/status.hpp"
#include "device/borrowed_gpus.hpp"

namespace oocdnn {

// The GPUs of a list such as "cuda:1,cuda:2"; each of them is needed. kInvalidProblem if the text
// is no such list, or names a GPU twice.
Result<BorrowedGpus> ParseBorrowed(const std::string& text);

// The GPUs of OOCDNN_BORROW that a context on this device borrows; none of them is needed. A CPU
// and a list of devices borrow none, and a GPU does not borrow from itself. A name may be followed
// by the bytes that the GPU lends to training.
Result<BorrowedGpus> BorrowedFor(const std::string& device);

// Bytes of the largest piece of a copy that goes over several links, by OOCDNN_BORROW_PIECE.
Result<int64_t> BorrowedPiece();

}  // namespace oocdnn
