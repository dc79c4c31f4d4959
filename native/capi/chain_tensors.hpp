// The tensors between the links of a chain, which are nobody's: their shapes follow from the links.
#pragma once

#include "base/status.hpp"
#include "capi/oocdnn.h"

namespace oocdnn {

// What a link writes, from what it reads: without memory, in the memory order of x.
Result<oocdnn_tensor> ResultOf(const oocdnn_convolution& link, const oocdnn_tensor& x,
                               const oocdnn_tensor* w);

}  // namespace oocdnn
