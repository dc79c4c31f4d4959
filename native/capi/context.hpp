// What stands behind the C interface's handle of a context, and what its calls share.
#pragma once

#include <memory>

#include "base/thread.hpp"
#include "capi/oocdnn.h"
#include "library/context.hpp"

struct oocdnn_context {
  std::unique_ptr<oocdnn::Context> context;
  oocdnn::Math math = oocdnn::Math::kFp32;
  bool destroyed = false;  // from the progress callback of the call that is running
};

namespace oocdnn {

// A call with a progress callback. The end of the call destroys a context that the callback has
// destroyed; it also does where the callback ends the thread.
class CallOn {
 public:
  explicit CallOn(oocdnn_context* context) : context_(context) {}
  ~CallOn() {
    const bool ended = !context_->context->IsCalledByThisThread();
    if (ended && context_->destroyed) delete context_;
  }
  CallOn(const CallOn&) = delete;
  CallOn& operator=(const CallOn&) = delete;

 private:
  oocdnn_context* const context_;
};

inline Progress ProgressOf(oocdnn_progress progress, void* user) {
  if (progress == nullptr) return {};
  return [=](int64_t done, int64_t total) {
    const Uncancelled::Lifted lifted;
    return progress(user, done, total) == 0;
  };
}

inline int64_t LimitOf(const oocdnn_convolution& convolution) {
  return convolution.workspace_limit < 0 ? kLimitOfContext : convolution.workspace_limit;
}

}  // namespace oocdnn
