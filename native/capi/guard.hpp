// What the C functions share: nothing throws across them, and every failure becomes a status and a
// text of the calling thread.
#pragma once

#include "base/guarded.hpp"
#include "capi/oocdnn.h"

namespace oocdnn {

// The code of `status`, whose text and number become those of the thread's last error.
oocdnn_status Report(const Status& status);

template <class Body>
oocdnn_status Guard(const Body& body) {
  return Report(Guarded(body));
}

// kInvalidProblem where an argument is null.
Status Need(const void* pointer, const char* what);
// The same where a number is no oocdnn_batch_policy.
Status NeedPolicy(int32_t policy);

}  // namespace oocdnn
