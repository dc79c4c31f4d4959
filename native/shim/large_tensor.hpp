// Tensor descriptors that the real library refuses because the tensor has 2^31 elements or more:
// what a client told them is remembered here, by their addresses, and only our convolutions take
// them.
//
// Any thread.
#pragma once

#include "shim/values.hpp"

namespace oocdnn::shim {

// Whether there is any, which costs nothing to ask.
bool AnyLarge();
// What was told, if the descriptor is one of them.
bool FindLarge(cudnnTensorDescriptor_t descriptor, TensorValue* value);
bool IsLarge(cudnnTensorDescriptor_t descriptor);

}  // namespace oocdnn::shim
