// Operations on tensors, element by element, where there is no GPU.
#include <algorithm>

#include "shim/descriptors.hpp"
#include "shim/elements.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

using Tensor = cudnnTensorDescriptor_t;

// c = alpha * a + beta * c, where a may have extents of 1.
cudnnStatus_t AddTensor(cudnnHandle_t handle, const void* alpha, Tensor a_desc, const void* a_data,
                        const void* beta, Tensor c_desc, void* c_data) {
  return Serve([&] {
    TensorArgument a, c;
    OOC_CUDNN_TRY(CheckCall(handle, alpha, beta));
    OOC_CUDNN_TRY(TakeTensor("A", a_desc, a_data, &a));
    OOC_CUDNN_TRY(TakeTensor("C", c_desc, c_data, &c));
    OOC_NEED(BroadcastsTo(a.value, c.value), "the extents of A are neither those of C nor 1");
    const Blend blend{ScalarOf(alpha, c.value.dtype), ScalarOf(beta, c.value.dtype)};
    Walk<2>(c.value.rank, c.value.dims, {Broadcast(a.value), c.value.stride},
            [&](const auto& at, const Axes&) { blend(c, at[1], Load(a, at[0])); });
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t TransformTensor(cudnnHandle_t handle, const void* alpha, Tensor x_desc,
                              const void* x_data, const void* beta, Tensor y_desc, void* y_data) {
  return Serve([&] {
    TensorArgument x, y;
    OOC_CUDNN_TRY(CheckCall(handle, alpha, beta));
    OOC_CUDNN_TRY(TakeTensor("x", x_desc, x_data, &x));
    OOC_CUDNN_TRY(TakeTensor("y", y_desc, y_data, &y));
    OOC_NEED(x.value.SameShape(y.value), "x and y differ in their extents");
    const Blend blend{ScalarOf(alpha, y.value.dtype), ScalarOf(beta, y.value.dtype)};
    Walk<2>(y.value.rank, y.value.dims, {x.value.stride, y.value.stride},
            [&](const auto& at, const Axes&) { blend(y, at[1], Load(x, at[0])); });
    return CUDNN_STATUS_SUCCESS;
  });
}

// std::max and std::min pass the first operand on where the second is a NaN.
double Larger(double a, double b, bool nans) {
  if (std::isnan(a) || std::isnan(b)) return nans ? a + b : std::fmax(a, b);
  return std::max(a, b);
}
double Smaller(double a, double b, bool nans) {
  if (std::isnan(a) || std::isnan(b)) return nans ? a + b : std::fmin(a, b);
  return std::min(a, b);
}

double Apply(const cudnnOpTensorStruct& op, double a, double b) {
  const bool nans = op.nans == CUDNN_PROPAGATE_NAN;
  switch (op.op) {
    case CUDNN_OP_TENSOR_ADD: return a + b;
    case CUDNN_OP_TENSOR_MUL: return a * b;
    case CUDNN_OP_TENSOR_MIN: return Smaller(a, b, nans);
    case CUDNN_OP_TENSOR_MAX: return Larger(a, b, nans);
    case CUDNN_OP_TENSOR_SQRT: return std::sqrt(a);
    case CUDNN_OP_TENSOR_NOT: return 1.0 - a;
  }
  return 0.0;
}

// c = op(alpha1 * a, alpha2 * b) + beta * c, where b may have extents of 1.
cudnnStatus_t OpTensor(cudnnHandle_t handle, cudnnOpTensorDescriptor_t op, const void* alpha1,
                       Tensor a_desc, const void* a_data, const void* alpha2, Tensor b_desc,
                       const void* b_data, const void* beta, Tensor c_desc, void* c_data) {
  return Serve([&] {
    TensorArgument a, b, c;
    OOC_CUDNN_TRY(CheckCall(handle, alpha1, beta));
    OOC_NEED(op != nullptr, "the descriptor of the operation is null");
    OOC_CUDNN_TRY(TakeTensor("A", a_desc, a_data, &a));
    OOC_CUDNN_TRY(TakeTensor("C", c_desc, c_data, &c));
    OOC_NEED(a.value.SameShape(c.value), "A and C differ in their extents");
    const bool unary = op->op == CUDNN_OP_TENSOR_SQRT || op->op == CUDNN_OP_TENSOR_NOT;
    double factor = 0.0;
    if (unary) {
      b = a;
    } else {
      OOC_NEED(alpha2 != nullptr, "alpha2 is null");
      OOC_CUDNN_TRY(TakeTensor("B", b_desc, b_data, &b));
      OOC_NEED(BroadcastsTo(b.value, c.value), "the extents of B are neither those of C nor 1");
      factor = ScalarOf(alpha2, c.value.dtype);
    }
    const double alpha = ScalarOf(alpha1, c.value.dtype);
    const Blend blend{1.0, ScalarOf(beta, c.value.dtype)};
    Walk<3>(c.value.rank, c.value.dims, {a.value.stride, Broadcast(b.value), c.value.stride},
            [&](const auto& at, const Axes&) {
              const double second = unary ? 0.0 : factor * Load(b, at[1]);
              blend(c, at[2], Apply(*op, alpha * Load(a, at[0]), second));
            });
    return CUDNN_STATUS_SUCCESS;
  });
}

// The value is of y's own type, unlike the factors of other functions.
cudnnStatus_t SetTensor(cudnnHandle_t handle, Tensor y_desc, void* y_data, const void* value) {
  return Serve([&] {
    TensorArgument y, one;
    OOC_NEED(handle != nullptr, "the handle is null; cudnnCreate makes one");
    OOC_CUDNN_TRY(TakeTensor("y", y_desc, y_data, &y));
    OOC_CUDNN_TRY(TakeTensor("the value", y_desc, value, &one));
    const double number = Load(one, 0);
    Walk<1>(y.value.rank, y.value.dims, {y.value.stride},
            [&](const auto& at, const Axes&) { Store(y, at[0], number); });
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t ScaleTensor(cudnnHandle_t handle, Tensor y_desc, void* y_data, const void* alpha) {
  return Serve([&] {
    TensorArgument y;
    OOC_CUDNN_TRY(CheckCall(handle, alpha, alpha));
    OOC_CUDNN_TRY(TakeTensor("y", y_desc, y_data, &y));
    const double factor = ScalarOf(alpha, y.value.dtype);
    Walk<1>(y.value.rank, y.value.dims, {y.value.stride},
            [&](const auto& at, const Axes&) { Store(y, at[0], factor * Load(y, at[0])); });
    return CUDNN_STATUS_SUCCESS;
  });
}

double Sigmoid(double v) { return 1.0 / (1.0 + std::exp(-v)); }

double Activate(const ActivationValue& with, double v) {
  const bool drop_nan = std::isnan(v) && with.nans == CUDNN_NOT_PROPAGATE_NAN;
  switch (with.mode) {
    case CUDNN_ACTIVATION_SIGMOID: return Sigmoid(v);
    case CUDNN_ACTIVATION_RELU: return v < 0.0 || drop_nan ? 0.0 : v;
    case CUDNN_ACTIVATION_TANH: return std::tanh(v);
    case CUDNN_ACTIVATION_CLIPPED_RELU:
      return v < 0.0 || drop_nan ? 0.0 : (v > with.coef ? with.coef : v);
    case CUDNN_ACTIVATION_ELU: return v > 0.0 ? v : with.coef * std::expm1(v);
    case CUDNN_ACTIVATION_IDENTITY: return v;
    case CUDNN_ACTIVATION_SWISH: return v * Sigmoid(with.swish_beta * v);
  }
  return v;
}

// The derivative where the input was x and the output y.
double Slope(const ActivationValue& with, double x, double y) {
  switch (with.mode) {
    case CUDNN_ACTIVATION_SIGMOID: return y * (1.0 - y);
    case CUDNN_ACTIVATION_RELU: return x > 0.0 ? 1.0 : 0.0;
    case CUDNN_ACTIVATION_TANH: return 1.0 - y * y;
    case CUDNN_ACTIVATION_CLIPPED_RELU: return x > 0.0 && x < with.coef ? 1.0 : 0.0;
    case CUDNN_ACTIVATION_ELU: return x > 0.0 ? 1.0 : y + with.coef;
    case CUDNN_ACTIVATION_IDENTITY: return 1.0;
    case CUDNN_ACTIVATION_SWISH: {
      const double s = Sigmoid(with.swish_beta * x);
      return s + with.swish_beta * x * s * (1.0 - s);
    }
  }
  return 1.0;
}

cudnnStatus_t ActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation,
                                const void* alpha, Tensor x_desc, const void* x_data,
                                const void* beta, Tensor y_desc, void* y_data) {
  return Serve([&] {
    TensorArgument x, y;
    OOC_CUDNN_TRY(CheckCall(handle, alpha, beta));
    OOC_NEED(activation != nullptr, "the descriptor of the activation is null");
    OOC_CUDNN_TRY(TakeTensor("x", x_desc, x_data, &x));
    OOC_CUDNN_TRY(TakeTensor("y", y_desc, y_data, &y));
    OOC_NEED(x.value.SameShape(y.value), "x and y differ in their extents");
    const Blend blend{ScalarOf(alpha, y.value.dtype), ScalarOf(beta, y.value.dtype)};
    Walk<2>(y.value.rank, y.value.dims, {x.value.stride, y.value.stride},
            [&](const auto& at, const Axes&) {
              blend(y, at[1], Activate(activation->value, Load(x, at[0])));
            });
    return CUDNN_STATUS_SUCCESS;
  });
}

cudnnStatus_t ActivationBackward(cudnnHandle_t handle, cudnnActivationDescriptor_t activation,
                                 const void* alpha, Tensor y_desc, const void* y_data,
                                 Tensor dy_desc, const void* dy_data, Tensor x_desc,
                                 const void* x_data, const void* beta, Tensor dx_desc,
                                 void* dx_data) {
  return Serve([&] {
    TensorArgument x, y, dx, dy;
    OOC_CUDNN_TRY(CheckCall(handle, alpha, beta));
    OOC_NEED(activation != nullptr, "the descriptor of the activation is null");
    OOC_CUDNN_TRY(TakeTensor("x", x_desc, x_data, &x));
    OOC_CUDNN_TRY(TakeTensor("y", y_desc, y_data, &y));
    OOC_CUDNN_TRY(TakeTensor("dy", dy_desc, dy_data, &dy));
    OOC_CUDNN_TRY(TakeTensor("dx", dx_desc, dx_data, &dx));
    OOC_NEED(
        x.value.SameShape(dx.value) && y.value.SameShape(dx.value) && dy.value.SameShape(dx.value),
        "x, y, dy and dx differ in their extents");
    const Blend blend{ScalarOf(alpha, dx.value.dtype), ScalarOf(beta, dx.value.dtype)};
    Walk<4>(dx.value.rank, dx.value.dims,
            {x.value.stride, y.value.stride, dy.value.stride, dx.value.stride},
            [&](const auto& at, const Axes&) {
              const double slope = Slope(activation->value, Load(x, at[0]), Load(y, at[1]));
              blend(dx, at[3], slope * Load(dy, at[2]));
            });
    return CUDNN_STATUS_SUCCESS;
  });
}

}  // namespace

void ServeElementwise(Served* served) {
  OOC_SERVE(served, cudnnAddTensor, AddTensor);
  OOC_SERVE(served, cudnnOpTensor, OpTensor);
  OOC_SERVE(served, cudnnSetTensor, SetTensor);
  OOC_SERVE(served, cudnnScaleTensor, ScaleTensor);
  OOC_SERVE(served, cudnnTransformTensor, TransformTensor);
  OOC_SERVE(served, cudnnActivationForward, ActivationForward);
  OOC_SERVE(served, cudnnActivationBackward, ActivationBackward);
}

}  // namespace oocdnn::shim
