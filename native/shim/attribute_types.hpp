// Which types the elements of graph attributes have.
#pragma once

#include "abi/cudnn_backend.h"
#include "shim/answer.hpp"

namespace oocdnn::shim {

// BAD_PARAM_ATTRIBUTE_TYPE where the attribute is known and its elements are not of this type.
cudnnStatus_t CheckAttributeType(cudnnBackendAttributeName_t name,
                                 cudnnBackendAttributeType_t type);

}  // namespace oocdnn::shim
