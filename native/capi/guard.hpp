// What the C functions share: nothing throws across them, and every failure becomes a status and a
// text of the calling thread.
#pragma once

#include <array>

#include "base/guarded.hpp"
#include "base/thread.hpp"
#include "capi/oocdnn.h"

namespace oocdnn {

// The code of `status`, whose text and number become those of the thread's last error.
oocdnn_status Report(const Status& status);

template <class Body>
oocdnn_status Guard(const Body& body) {
  const Uncancelled uncancelled;
  return Report(Guarded(body));
}

// Storage for what functions of this thread hand out. A few later calls leave it as it is, since a
// signal handler may call the same function before the caller has read the result.
template <class T>
class HandedOut {
 public:
  // The storage of the next result.
  T& Next() { return values_[next_++ % values_.size()]; }

 private:
  std::array<T, 4> values_;
  size_t next_ = 0;
};

// kInvalidProblem where an argument is null.
Status Need(const void* pointer, const char* what);
// The same where a number of bytes, or of elements of an array, is below 0 or none that there is.
Status NeedBytes(int64_t bytes, const char* what);
Status NeedCount(int64_t count, const char* what);
// The same where a limit is of a magnitude above 2^60.
Status NeedLimit(int64_t limit);
// The same where a number is no oocdnn_batch_policy.
Status NeedPolicy(int32_t policy);

}  // namespace oocdnn
