// What stands behind the C interface's handle of a context.
#pragma once

#include <memory>

#include "capi/oocdnn.h"
#include "library/context.hpp"

struct oocdnn_context {
  std::unique_ptr<oocdnn::Context> context;
  oocdnn::Math math = oocdnn::Math::kFp32;
};
