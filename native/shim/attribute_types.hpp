// The element types and element counts of graph attributes.
#pragma once

#include "abi/cudnn_backend.h"
#include "shim/answer.hpp"

namespace oocdnn::shim {

// BAD_PARAM_ATTRIBUTE_TYPE where the attribute's elements are not of this type, or there is no such
// type.
cudnnStatus_t CheckAttributeType(cudnnBackendAttributeName_t name,
                                 cudnnBackendAttributeType_t type);

// BAD_PARAM where a client may not set that many elements.
cudnnStatus_t CheckAttributeCount(cudnnBackendAttributeName_t name, int64_t count);

}  // namespace oocdnn::shim
