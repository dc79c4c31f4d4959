// The C functions about one call that need no context: what it is where nothing is said, and how
// much it saves.
#include <algorithm>

#include "base/checked.hpp"
#include "capi/guard.hpp"
#include "capi/oocdnn.h"
#include "capi/translate.hpp"

using namespace oocdnn;  // NOLINT: this file is the C face of that namespace

oocdnn_status oocdnn_saved_bytes(const oocdnn_convolution* convolution,
                                 const oocdnn_operands* operands, int64_t* bytes) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(convolution, "the convolution"));
    OOC_TRY(Need(bytes, "the place for the bytes"));
    oocdnn_convolution unsaved = *convolution;
    unsaved.saves = 0;
    OOC_ASSIGN(CallArguments call, Translate(&unsaved, operands, Math::kFp32));
    call.problem.saves = true;
    SetPooled(&call.problem);
    OOC_TRY(Validate(call.problem));
    const bool any = call.problem.Uses(Operand::kSaved);
    *bytes = any ? call.problem.BytesOf(Operand::kSaved) : 0;
    return {};
  });
}

oocdnn_convolution oocdnn_default_convolution(int32_t direction, int32_t rank) {
  oocdnn_convolution convolution{};
  convolution.direction = direction;
  convolution.rank = rank;
  convolution.groups = 1;
  convolution.alpha = 1.0;
  convolution.residual_alpha = 1.0;
  convolution.workspace_limit = -1;
  for (int s = 0; s < 3; ++s) {
    convolution.stride[s] = convolution.dilation[s] = 1;
    convolution.pool.window[s] = convolution.pool.stride[s] = 1;
  }
  return convolution;
}

oocdnn_tensor oocdnn_dense_tensor(int32_t dtype, int32_t rank, const int64_t* shape, void* data) {
  oocdnn_tensor tensor{};
  tensor.data = data;
  tensor.fd = -1;
  tensor.dtype = dtype;
  tensor.rank = rank;
  int64_t stride = 1;
  if (shape == nullptr) return tensor;
  for (int32_t axis = std::clamp(rank, 0, 5) - 1; axis >= 0; --axis) {
    tensor.shape[axis] = shape[axis];
    tensor.stride[axis] = stride;
    stride = Mul(stride, shape[axis] > 0 ? shape[axis] : 1);
  }
  return tensor;
}
