// The descriptors of the fake cuDNN, what their rules are, and what a graph of them describes.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "abi/cudnn_backend.h"
#include "fake_convolution.hpp"
#include "fake_engines.hpp"

namespace fake {

using Ints = std::vector<int64_t>;

struct Node;
using Shared = std::shared_ptr<Node>;

struct Node {
  cudnnBackendDescriptorType_t type;
  std::map<int, std::vector<char>> values;
  std::map<int, std::vector<Shared>> children;
  bool finalized = false;
  FakeEngine engine{};
  Shared graph;  // of an engine configuration

  [[nodiscard]] Ints ints(int name) const {
    const auto found = values.find(name);
    if (found == values.end()) return {};
    Ints all(found->second.size() / sizeof(int64_t));
    std::memcpy(all.data(), found->second.data(), found->second.size());
    return all;
  }
  template <class T>
  [[nodiscard]] T one(int name) const {
    T value{};
    const auto found = values.find(name);
    if (found != values.end()) {
      std::memcpy(&value, found->second.data(), std::min(sizeof value, found->second.size()));
    }
    return value;
  }
  [[nodiscard]] const Node& child(int name) const { return *children.at(name).at(0); }
  // Of a graph those behind the first, the convolution.
  [[nodiscard]] std::vector<Shared> steps() const {
    const std::vector<Shared>& all = children.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    return {all.begin() + 1, all.end()};
  }
};

inline std::string last_error;  // NOLINT: of the one thread that tests have

inline cudnnStatus_t Fail(cudnnStatus_t status, std::string why) {
  last_error = std::move(why);
  return status;
}

inline Shared& Of(cudnnBackendDescriptor_t raw) { return *static_cast<Shared*>(raw); }

inline size_t SizeOf(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE: return 8;
    case CUDNN_TYPE_BOOLEAN: return 1;
    default: return 4;
  }
}

inline View ViewOf(const Node& tensor) {
  View view{};
  const Ints dims = tensor.ints(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const Ints strides = tensor.ints(CUDNN_ATTR_TENSOR_STRIDES);
  const size_t missing = 5 - dims.size();
  for (size_t i = 0; i < 5; ++i) {
    const bool inserted = i >= 2 && i < 2 + missing;
    const size_t from = i < 2 ? i : i - missing;
    view.dims[i] = inserted ? 1 : dims[from];
    view.strides[i] = inserted ? 0 : strides[from];
  }
  view.dtype = tensor.one<int>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  view.id = tensor.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  return view;
}

// The attributes of an operation: x, w, y, the convolution, alpha and beta.
struct Names {
  int x, w, y, convolution, alpha, beta;
};
inline Names NamesOf(int type) {
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
    return {704, 703, 705, 702, 700, 701};
  }
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    return {710, 709, 711, 708, 706, 707};
  }
  return {716, 715, 717, 714, 712, 713};
}

inline Spatial SpatialOf(const Node& convolution) {
  Spatial spatial;
  const Ints strides = convolution.ints(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const Ints dilations = convolution.ints(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const Ints pads = convolution.ints(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  for (size_t i = 0; i < strides.size(); ++i) {
    const size_t d = 3 - strides.size() + i;
    spatial.stride[d] = strides[i];
    spatial.dilation[d] = dilations[i];
    spatial.pad[d] = pads[i];
  }
  return spatial;
}

inline cudnnStatus_t CheckTensor(const Node& tensor) {
  const Ints dims = tensor.ints(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const Ints strides = tensor.ints(CUDNN_ATTR_TENSOR_STRIDES);
  if (dims.size() < 4 || dims.size() > 5 || dims.size() != strides.size()) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "a tensor needs four or five dimensions");
  }
  if (std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim < 1; })) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "an extent is not positive");
  }
  if (tensor.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT) % 16 != 0 ||
      tensor.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID) == 0) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "no alignment or no identifier");
  }
  return CUDNN_STATUS_SUCCESS;
}

inline cudnnStatus_t CheckOperation(const Node& node) {
  const Names names = NamesOf(node.type);
  for (const int name : {names.x, names.w, names.y, names.convolution}) {
    if (node.children.count(name) == 0) return Fail(CUDNN_STATUS_BAD_PARAM, "something is missing");
  }
  const View x = ViewOf(node.child(names.x)), w = ViewOf(node.child(names.w)),
             y = ViewOf(node.child(names.y));
  const Node& convolution = node.child(names.convolution);
  const Spatial spatial = SpatialOf(convolution);
  const bool wide = x.dtype == CUDNN_DATA_DOUBLE;
  if (convolution.one<int>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) !=
          (wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT) ||
      convolution.one<int>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION) {
    return Fail(CUDNN_STATUS_BAD_PARAM, "the type or the mode of the convolution");
  }
  if (convolution.ints(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS) !=
      convolution.ints(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)) {
    return Fail(CUDNN_STATUS_NOT_SUPPORTED, "the padding is not symmetric");
  }
  bool fits = x.dims[0] == y.dims[0] && w.dims[0] == y.dims[1] && x.dims[1] % w.dims[1] == 0;
  for (int d = 0; d < 3; ++d) {
    const int64_t reach = (w.dims[2 + d] - 1) * spatial.dilation[d] + 1;
    const int64_t room = x.dims[2 + d] + 2 * spatial.pad[d] - reach;
    fits = fits && room >= 0 && room / spatial.stride[d] + 1 == y.dims[2 + d];
  }
  return fits ? CUDNN_STATUS_SUCCESS
              : Fail(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "the shapes do not go together");
}

inline bool IsVirtual(const Node& tensor) { return tensor.one<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL); }
inline int64_t IdOf(const Node& tensor) { return tensor.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID); }

// Of the steps behind a convolution each reads what the one before it leaves, in no memory and as
// float sums, and only the last writes a tensor that is in memory.
inline cudnnStatus_t CheckGraph(const Node& graph) {
  const Node& convolution = graph.child(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  const Node* result = &convolution.child(NamesOf(convolution.type).y);
  for (const Shared& step : graph.steps()) {
    const Node& x = step->child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    const Node& mode = step->child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const bool adds = mode.one<int>(CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_ADD;
    const bool reads = IsVirtual(*result) && IsVirtual(x) && IdOf(*result) == IdOf(x) &&
                       ViewOf(x).dtype == CUDNN_DATA_FLOAT &&
                       step->children.count(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) == (adds ? 1 : 0);
    if (!reads || mode.one<int>(CUDNN_ATTR_POINTWISE_MATH_PREC) != CUDNN_DATA_FLOAT) {
      return Fail(CUDNN_STATUS_BAD_PARAM, "a step that does not go on with the one before it");
    }
    result = &step->child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  }
  return IsVirtual(*result) ? Fail(CUDNN_STATUS_BAD_PARAM, "a result in no memory")
                            : CUDNN_STATUS_SUCCESS;
}

// What the steps behind a convolution do to its sums, on the way to a tensor `y`.
inline Epilogue EpilogueOf(const Node& graph, const std::map<int64_t, void*>& memory, View* y) {
  Epilogue epilogue;
  for (const Shared& step : graph.steps()) {
    const Node& mode = step->child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    if (mode.one<int>(CUDNN_ATTR_POINTWISE_MODE) == CUDNN_POINTWISE_ADD) {
      const Node& bias = step->child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
      epilogue.bias = static_cast<const float*>(memory.at(IdOf(bias)));
    } else {
      epilogue.cuts = true;
      const bool limited = mode.values.count(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP) != 0;
      if (limited) epilogue.most = mode.one<double>(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP);
    }
    *y = ViewOf(step->child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
  }
  return epilogue;
}

}  // namespace fake
