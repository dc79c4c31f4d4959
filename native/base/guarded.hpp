// Guarded: what a piece of work throws (the standard library, when there is no memory) ends with it
// and becomes its status. It stands where a call comes in, where a thread of ours takes a piece of
// work, and where work in flight has to be waited for on every way out.
#pragma once

#include "base/status.hpp"

namespace oocdnn {

// The status of the exception being handled: kOutOfMemory for std::bad_alloc, else kInternal. Only
// within a handler.
Status StatusOfException();

template <class Work>
Status Guarded(const Work& work) noexcept {
  try {
    return work();
  } catch (...) {
    return StatusOfException();
  }
}

}  // namespace oocdnn
