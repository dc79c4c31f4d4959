// From the C structs to a Problem and its operands, with checks on everything that a Problem cannot
// say: ranks, types, channel counts against groups.
#pragma once

#include "capi/oocdnn.h"
#include "exec/staging.hpp"

namespace oocdnn {

struct CallArguments {
  Problem problem;
  OperandViews tensors;
};

// The windows over the result of a call whose rank is right.
Pool PoolOf(const oocdnn_convolution& convolution);

Result<CallArguments> Translate(const oocdnn_convolution* convolution,
                                const oocdnn_operands* operands, Math default_math);

}  // namespace oocdnn
