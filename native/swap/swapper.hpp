// Copies between a device's memory and slabs, which are page-locked host memory or memory of
// another device, beside the work of a stream that is not ours: what leaves the device in a
// training step, and comes back.
//
// A copy begins when the stream has arrived where it is at the call, and runs on streams of its
// direction; several links may carry parts of it. Copies that touch the same bytes are in order
// only where the stream has waited in between. Its ticket is for one wait of the stream, which ends
// it. No call allocates memory or creates an event once as many copies were under way as ever are.
//
// Any thread may call, one at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.hpp"

namespace oocdnn::swap {

enum class Way : uint8_t { kOut, kIn };  // out: away from the device

// A stream, and an address on the device, as the device's own interface has them.
using Stream = void*;
using Address = uint64_t;

class Swapper {
 public:
  virtual ~Swapper() = default;

  // Page-locked host memory of exactly so many bytes; kOutOfMemory where there is none.
  virtual Result<void*> AllocateSlab(int64_t bytes) = 0;
  // Memory of so many bytes of the GPU with this ordinal; kOutOfMemory where it has no more.
  // kInvalidProblem where it is this GPU, kUnsupported where there is none or this GPU does not
  // reach its memory.
  virtual Result<void*> BorrowSlab(int ordinal, int64_t bytes) = 0;
  // Copies with host memory go over the link of that GPU too, in pieces through a little of its
  // memory. Errors as of BorrowSlab.
  virtual Status BorrowLink(int ordinal, int64_t piece_bytes) = 0;
  // Waits for the copies of all slabs. kInvalidProblem where it is no slab.
  virtual Status FreeSlab(void* slab) = 0;

  // Copies between the first bytes of a slab and the device's memory. kInvalidProblem where it is
  // no slab or is smaller.
  virtual Result<int64_t> Start(Way way, Stream stream, Address device, void* slab,
                                int64_t bytes) = 0;
  // kInvalidProblem where there is no such ticket, as for the following one.
  virtual Status Wait(int64_t ticket, Stream stream) = 0;
  virtual Result<bool> Done(int64_t ticket) = 0;
};

}  // namespace oocdnn::swap
