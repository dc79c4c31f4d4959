// Descriptors of the tensors between the links of a chain. Their shapes follow from the links.
#pragma once

#include "base/status.hpp"
#include "capi/oocdnn.h"

namespace oocdnn {

// The result of a link that reads x: without memory, in the memory order of x.
Result<oocdnn_tensor> ResultOf(const oocdnn_convolution& link, const oocdnn_tensor& x,
                               const oocdnn_tensor* w);

}  // namespace oocdnn
