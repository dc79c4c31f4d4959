// The GPUs that lend a context their links, as a list of names.
#pragma once

#include <string>

#include "base/status.hpp"
#include "device/borrowed_gpus.hpp"

namespace oocdnn {

// Those in "cuda:1,cuda:2", which are needed. kInvalidProblem where the text is something else, or
// names a GPU twice.
Result<BorrowedGpus> ParseBorrowed(const std::string& text);

// Those of OOCDNN_BORROW for a device of this name, which are not needed: none for the CPU or
// several devices, and not itself. A name may be followed by the bytes that the GPU lends to
// training.
Result<BorrowedGpus> BorrowedFor(const std::string& device);

// Bytes of the largest piece of a copy that goes over several links, by OOCDNN_BORROW_PIECE.
Result<int64_t> BorrowedPiece();

}  // namespace oocdnn
