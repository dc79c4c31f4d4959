#include "shim/graph_pattern.hpp"

#include <algorithm>
#include <climits>
#include <cmath>
#include <utility>

namespace oocdnn::shim {
namespace {

Status No(const char* reason) { return Error(Code::kUnsupported, "%s", reason); }

// A tensor and the name by which the graph knows it.
struct GraphTensor {
  TensorValue value;
  int64_t uid = 0;
  bool is_virtual = false;
};

Result<GraphTensor> TensorOf(const NodePointer& node) {
  if (node == nullptr) return No("an operand is not set");
  GraphTensor tensor;
  const auto dims = node->Integers(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const auto stride = node->Integers(CUDNN_ATTR_TENSOR_STRIDES);
  if (dims.empty() || dims.size() != stride.size() || dims.size() > CUDNN_DIM_MAX) {
    return No("a tensor with no or too many axes");
  }
  // What changes how the elements are found.
  const bool plain = node->Integer(CUDNN_ATTR_TENSOR_IS_BY_VALUE).value_or(0) == 0 &&
                     node->Integer(CUDNN_ATTR_TENSOR_VECTOR_COUNT).value_or(1) == 1 &&
                     node->Integer(CUDNN_ATTR_TENSOR_REORDERING_MODE).value_or(0) == 0 &&
                     node->Find(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC) == nullptr &&
                     node->Find(CUDNN_ATTR_TENSOR_CONSTANT_VALUE) == nullptr;
  if (!plain) return No("a tensor that is given by value, in vectors, reordered or ragged");
  tensor.value.dtype = static_cast<cudnnDataType_t>(
      node->Integer(CUDNN_ATTR_TENSOR_DATA_TYPE).value_or(CUDNN_DATA_FLOAT));
  tensor.value.rank = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), tensor.value.dims.begin());
  std::copy(stride.begin(), stride.end(), tensor.value.stride.begin());
  tensor.uid = node->Integer(CUDNN_ATTR_TENSOR_UNIQUE_ID).value_or(-1);
  tensor.is_virtual = node->Integer(CUDNN_ATTR_TENSOR_IS_VIRTUAL).value_or(0) != 0;
  return tensor;
}

// Where the three directions keep the same things.
struct ConvolutionNames {
  cudnnBackendDescriptorType_t type;
  Direction direction;
  cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
};

constexpr ConvolutionNames kConvolutions[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, Direction::kForward,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, Direction::kBackwardData,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, Direction::kBackwardFilter,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

Result<ConvolutionValue> ConvolutionOf(const NodePointer& node) {
  if (node == nullptr) return No("the convolution is not set");
  ConvolutionValue value;
  struct Field {
    cudnnBackendAttributeName_t name;
    Axes* to;
  };
  const int64_t rank = node->Integer(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS).value_or(0);
  for (const Field& field : {Field{CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &value.pad},
                             Field{CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &value.pad_after},
                             Field{CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, &value.stride},
                             Field{CUDNN_ATTR_CONVOLUTION_DILATIONS, &value.dilation}}) {
    const auto numbers = node->Integers(field.name);
    if (rank < 1 || static_cast<int64_t>(numbers.size()) != rank || rank > CUDNN_DIM_MAX - 2) {
      return No("a convolution whose numbers do not fit its axes");
    }
    std::copy(numbers.begin(), numbers.end(), field.to->begin());
  }
  value.rank = static_cast<int>(rank);
  value.mode = static_cast<cudnnConvolutionMode_t>(
      node->Integer(CUDNN_ATTR_CONVOLUTION_CONV_MODE).value_or(CUDNN_CROSS_CORRELATION));
  value.compute = static_cast<cudnnDataType_t>(
      node->Integer(CUDNN_ATTR_CONVOLUTION_COMP_TYPE).value_or(CUDNN_DATA_FLOAT));
  return value;
}

// The state of reading one graph: what has been computed so far has the name `last`.
struct Reading {
  GraphPattern pattern;
  GraphTensor out;
  bool activated = false;
};

Status ReadConvolution(const Node& op, const ConvolutionNames& names, Reading* reading) {
  GraphPattern& pattern = reading->pattern;
  ConvolutionCall& call = pattern.call;
  OOC_ASSIGN(const GraphTensor x, TensorOf(op.Child(names.x)));
  OOC_ASSIGN(const GraphTensor w, TensorOf(op.Child(names.w)));
  OOC_ASSIGN(reading->out, TensorOf(op.Child(names.y)));
  OOC_ASSIGN(call.convolution, ConvolutionOf(op.Child(names.convolution)));
  if (x.is_virtual || w.is_virtual) return No("an operand that is computed in the graph");
  if (x.value.rank < 2 || w.value.rank < 2 || w.value.dims[1] < 1) return No("too few axes");
  const int64_t groups = x.value.dims[1] / w.value.dims[1];
  if (groups < 1 || groups > INT_MAX) return No("channels that make no number of groups");
  call.direction = names.direction;
  call.x.value = x.value;
  call.y.value = reading->out.value;
  call.w = {w.value.dtype, w.value.rank, w.value.dims, w.value.stride};
  call.convolution.groups = static_cast<int>(groups);
  call.alpha = op.Real(names.alpha).value_or(1.0);
  call.beta = op.Real(names.beta).value_or(0.0);
  pattern.x = x.uid;
  pattern.w = w.uid;
  pattern.y = reading->out.uid;
  return {};
}

Result<CallActivation> ReadActivation(const Node& with, int64_t mode) {
  const auto real = [&](cudnnBackendAttributeName_t name, double fallback) {
    return with.Real(name).value_or(fallback);
  };
  switch (mode) {
    case CUDNN_POINTWISE_TANH_FWD: return CallActivation{Activation::kTanh};
    case CUDNN_POINTWISE_SIGMOID_FWD: return CallActivation{Activation::kSigmoid};
    case CUDNN_POINTWISE_SWISH_FWD:
      return CallActivation{Activation::kSwish, real(CUDNN_ATTR_POINTWISE_SWISH_BETA, 1.0)};
    case CUDNN_POINTWISE_SOFTPLUS_FWD:
      return CallActivation{Activation::kSoftplus, real(CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, 1.0)};
    case CUDNN_POINTWISE_ELU_FWD:
      return CallActivation{Activation::kElu, real(CUDNN_ATTR_POINTWISE_ELU_ALPHA, 1.0)};
    case CUDNN_POINTWISE_RELU_FWD: {
      if (real(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0.0) != 0.0 ||
          real(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0.0) != 0.0) {
        return No("a relu with a slope or a lower bound");
      }
      const double upper = real(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, INFINITY);
      const bool clips = upper < static_cast<double>(3.4e38F);
      if (!clips) return CallActivation{Activation::kRelu};
      return CallActivation{Activation::kClippedRelu, upper};
    }
    default: return No("a pointwise operation that no epilogue has");
  }
}

bool IsVector(const TensorValue& value, const TensorValue& y) {
  bool vector = value.rank == y.rank && value.dims[1] == y.dims[1];
  for (int i = 0; i < value.rank; ++i) vector = vector && (i == 1 || value.dims[i] == 1);
  return vector;
}

// One number per channel, or a tensor of y's shape, combined with what there is so far: in the
// order scale, then bias and residual.
Status ReadOperand(const GraphTensor& operand, double factor, bool multiplies, Reading* reading) {
  GraphPattern& pattern = reading->pattern;
  ConvolutionCall& call = pattern.call;
  const TensorValue& y = call.y.value;
  if (operand.is_virtual) return No("an operand that is computed in the graph");
  const bool first = call.bias.value.rank == 0 && call.residual.value.rank == 0;
  if (IsVector(operand.value, y) && factor == 1.0) {
    if (multiplies && first && call.scale.value.rank == 0) {
      call.scale.value = operand.value;
      pattern.scale = operand.uid;
      return {};
    }
    if (!multiplies && call.bias.value.rank == 0) {
      call.bias.value = operand.value;
      pattern.bias = operand.uid;
      return {};
    }
  }
  if (!multiplies && operand.value.SameShape(y) && call.residual.value.rank == 0) {
    // A factor of 0 means that it is not read: callers pass what holds nothing yet.
    if (factor == 0.0) return {};
    call.residual.value = operand.value;
    call.residual_alpha = factor;
    pattern.residual = operand.uid;
    return {};
  }
  return No("an operand of an epilogue that is neither scale, bias nor residual, in this order");
}

Status ReadPointwise(const Node& op, Reading* reading) {
  const NodePointer with = op.Child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  if (with == nullptr) return No("a pointwise operation that is not set");
  if (reading->activated) return No("an operation after the activation");
  if (reading->pattern.call.direction != Direction::kForward) {
    return No("an operation after a gradient");
  }
  OOC_ASSIGN(GraphTensor x, TensorOf(op.Child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC)));
  OOC_ASSIGN(const GraphTensor y, TensorOf(op.Child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC)));
  if (!y.value.SameShape(reading->out.value)) return No("an epilogue that changes the shape");
  double first = op.Real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1).value_or(1.0);
  double second = op.Real(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2).value_or(1.0);
  const int64_t mode = with->Integer(CUDNN_ATTR_POINTWISE_MODE).value_or(-1);
  if (mode == CUDNN_POINTWISE_ADD || mode == CUDNN_POINTWISE_MUL) {
    OOC_ASSIGN(GraphTensor b, TensorOf(op.Child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC)));
    if (b.uid == reading->out.uid) {
      std::swap(b, x);
      std::swap(first, second);
    }
    if (x.uid != reading->out.uid || first != 1.0) return No("operations that form no chain");
    OOC_TRY(ReadOperand(b, second, mode == CUDNN_POINTWISE_MUL, reading));
  } else {
    if (x.uid != reading->out.uid || first != 1.0) return No("operations that form no chain");
    if (mode != CUDNN_POINTWISE_IDENTITY) {
      OOC_ASSIGN(reading->pattern.call.activation, ReadActivation(*with, mode));
      reading->activated = true;
    }
  }
  reading->out = y;
  return {};
}

}  // namespace

Result<GraphPattern> Recognize(const Node& graph) {
  const Attribute* const ops = graph.Find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (ops == nullptr || ops->nodes.empty()) return No("a graph without operations");
  Reading reading;
  for (size_t i = 0; i < ops->nodes.size(); ++i) {
    const Node& op = *ops->nodes[i];
    if (i > 0 && !reading.out.is_virtual) return No("operations that form no chain");
    if (i > 0 && op.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
      OOC_TRY(ReadPointwise(op, &reading));
      continue;
    }
    const auto* const names =
        std::find_if(std::begin(kConvolutions), std::end(kConvolutions),
                     [&](const ConvolutionNames& known) { return known.type == op.type; });
    if (i > 0 || names == std::end(kConvolutions)) return No("not a convolution first and alone");
    OOC_TRY(ReadConvolution(op, *names, &reading));
  }
  if (reading.out.is_virtual) return No("a result that is not stored");
  reading.pattern.call.y.value = reading.out.value;
  reading.pattern.y = reading.out.uid;
  return reading.pattern;
}

cudnnStatus_t Bind(const GraphPattern& pattern, const Node& pack, ConvolutionCall* call) {
  const auto uids = pack.Integers(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.Pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  OOC_NEED(uids.size() == pointers.size(), "%zu names for %zu pointers", uids.size(),
           pointers.size());
  *call = pattern.call;
  struct Slot {
    int64_t uid;
    bool used;
    void** to;
  };
  for (const Slot& slot :
       {Slot{pattern.x, true, &call->x.data}, Slot{pattern.w, true, &call->w_data},
        Slot{pattern.y, true, &call->y.data},
        Slot{pattern.bias, call->bias.value.rank > 0, &call->bias.data},
        Slot{pattern.scale, call->scale.value.rank > 0, &call->scale.data},
        Slot{pattern.residual, call->residual.value.rank > 0, &call->residual.data}}) {
    if (!slot.used) continue;
    const auto found = std::find(uids.begin(), uids.end(), slot.uid);
    OOC_NEED(found != uids.end(), "the variant pack lacks the tensor %lld",
             static_cast<long long>(slot.uid));
    *slot.to = pointers[static_cast<size_t>(found - uids.begin())];
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace oocdnn::shim
