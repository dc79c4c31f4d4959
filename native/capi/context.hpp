// What stands behind the C interface's handle of a context, and what its calls share.
#pragma once

#include <memory>

#include "capi/oocdnn.h"
#include "library/context.hpp"

struct oocdnn_context {
  std::unique_ptr<oocdnn::Context> context;
  oocdnn::Math math = oocdnn::Math::kFp32;
};

namespace oocdnn {

inline Progress ProgressOf(oocdnn_progress progress, void* user) {
  if (progress == nullptr) return {};
  return [=](int64_t done, int64_t total) { return progress(user, done, total) == 0; };
}

inline int64_t LimitOf(const oocdnn_convolution& convolution) {
  return convolution.workspace_limit < 0 ? kLimitOfContext : convolution.workspace_limit;
}

}  // namespace oocdnn
