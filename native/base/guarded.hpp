// Guarded: what a piece of work throws (the standard library, when there is no memory) ends with it
// and becomes its status. It stands where a call comes in, where a thread of ours takes a piece of
// work, and where work in flight has to be waited for on every way out.
//
// The unwinding that pthread_exit and pthread_cancel begin in a callback is no exception of ours:
// it passes, and destructors release what the call holds. It ends the process at a frame that is
// noexcept, so none may be between a callback and its caller.
#pragma once

#include <cxxabi.h>

#include "base/status.hpp"

namespace oocdnn {

// The status of the exception being handled: kOutOfMemory for std::bad_alloc, else kInternal. Only
// within a handler.
Status StatusOfException();

template <class Work>
Status Guarded(const Work& work) {
  try {
    return work();
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    return StatusOfException();
  }
}

}  // namespace oocdnn
