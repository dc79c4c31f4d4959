// The graph is a convolution of three tensors, and of a fourth where a bias is added; sums that an
// epilogue goes on with are in no memory. Groups are implied by the channels of x and w. Axes that
// nobody sees are left out, because cuDNN has more engines for two dimensions.
#include "device/cuda/cudnn_graph.hpp"

#include "device/cuda/engine.hpp"

namespace oocdnn::cuda {
namespace {

using Ints = std::vector<int64_t>;

// What alignment every tile has at least; engines ask for 16 bytes at most.
constexpr int64_t kAlignment = 16;

cudnnDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return CUDNN_DATA_FLOAT;
    case DType::kFloat64: return CUDNN_DATA_DOUBLE;
    case DType::kFloat16: return CUDNN_DATA_HALF;
    case DType::kBFloat16: return CUDNN_DATA_BFLOAT16;
    case DType::kByte: return CUDNN_DATA_UINT8;
  }
  return CUDNN_DATA_FLOAT;
}

int64_t IdOf(int operand) { return operand + 1; }
// Of the sums, and of these with a bias.
constexpr int64_t kSumId = 101, kBiasedId = 102;

// The first of the three spatial axes that cuDNN is told of.
int FirstAxis(const ConvShape& shape) {
  const bool flat = shape.in[0] == 1 && shape.filter[0] == 1 && shape.out[0] == 1;
  return flat && shape.pad_before[0] == 0 ? 1 : 0;
}

Ints Axes(const ConvShape& shape, const Spatial& values) {
  return {values.begin() + FirstAxis(shape), values.end()};
}

// Group and channel are one dimension to cuDNN: those of w are its output channels. `id`: of one
// that is in no memory; 0: the operand's own.
Result<Descriptor> MakeTensor(const Cudnn& cudnn, const ConvShape& shape, int operand,
                              const TileLayout& layout, int64_t id = 0) {
  const bool filter = operand == Index(Operand::kW);
  const Dims &extent = layout.shape, &stride = layout.stride;
  Ints dims{extent[0], extent[1] * extent[2]}, strides{stride[0], stride[2]};
  if (filter) {
    dims = {extent[0] * extent[1], extent[2]};
    strides = {stride[1], stride[2]};
  }
  for (int d = 3 + FirstAxis(shape); d < 6; ++d) {
    dims.push_back(extent[d]);
    strides.push_back(stride[d]);
  }
  DescriptorBuilder tensor(cudnn, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "describing a tile");
  tensor.One(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, TypeOf(layout.dtype))
      .Ints(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
      .Ints(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .Int(CUDNN_ATTR_TENSOR_UNIQUE_ID, id == 0 ? IdOf(operand) : id)
      .Int(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
  if (id != 0) tensor.One(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
  return tensor.Finalize();
}

// A dilation or a stride that moves nothing is 1: many engines want nothing else.
ConvShape Simplified(ConvShape shape) {
  for (int d = 0; d < 3; ++d) {
    if (shape.filter[d] == 1) shape.dilation[d] = 1;
    if (shape.in[d] + 2 * shape.pad_before[d] == shape.Reach(d)) shape.stride[d] = 1;
  }
  return shape;
}

Result<Descriptor> MakeConvolution(const Cudnn& cudnn, const ConvShape& given, DType sum) {
  const ConvShape shape = Simplified(given);
  const Ints pads = Axes(shape, shape.pad_before);
  return DescriptorBuilder(cudnn, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
                           "describing the convolution")
      .One(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, TypeOf(sum))
      .One(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION)
      .Int(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(pads.size()))
      .Ints(CUDNN_ATTR_CONVOLUTION_DILATIONS, Axes(shape, shape.dilation))
      .Ints(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, Axes(shape, shape.stride))
      .Ints(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, pads)
      .Ints(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, pads)
      .Finalize();
}

// The names that each direction has for the same things.
struct NodeNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, alpha, beta;
  std::array<cudnnBackendAttributeName_t, 3> tensor;  // x, w and y
};

NodeNames NamesOf(Direction direction) {
  switch (direction) {
    case Direction::kBackwardData:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY}};
    case Direction::kBackwardFilter:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
    default:
      return {
          CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
          {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
           CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}};
  }
}

// What the output tile would hold before its epilogue.
TileLayout SumsOf(const ConvolutionGraph& graph) {
  TileLayout layout = graph.layout[Index(OutputOf(graph.direction))];
  layout.dtype = AccumulatorOf(layout.dtype);
  return layout;
}

// A step of the epilogue, element by element: of the tensors x and y, and of b where there are two.
class PointwiseNode {
 public:
  PointwiseNode(const Cudnn& cudnn, const ConvolutionGraph& graph)
      : cudnn_(cudnn), type_(TypeOf(SumsOf(graph).dtype)) {}

  Result<Descriptor> Add(const Descriptor& x, const Descriptor& b, const Descriptor& y) const {
    OOC_ASSIGN(const Descriptor pointwise, Mode(CUDNN_POINTWISE_ADD).Finalize());
    return Node(pointwise, x, y).Child(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b).Finalize();
  }

  Result<Descriptor> Cut(const Epilogue& epilogue, const Descriptor& x, const Descriptor& y) const {
    DescriptorBuilder mode = Mode(CUDNN_POINTWISE_RELU_FWD);
    mode.One(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, CUDNN_PROPAGATE_NAN);
    mode.One(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_DOUBLE, 0.0);
    if (epilogue.activation == Activation::kClippedRelu) {
      mode.One(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, CUDNN_TYPE_DOUBLE, epilogue.parameter);
    }
    OOC_ASSIGN(const Descriptor pointwise, mode.Finalize());
    return Node(pointwise, x, y).Finalize();
  }

 private:
  [[nodiscard]] DescriptorBuilder Mode(cudnnPointwiseMode_t mode) const {
    DescriptorBuilder builder(cudnn_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "describing an epilogue");
    builder.One(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode);
    builder.One(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, type_);
    return builder;
  }
  [[nodiscard]] DescriptorBuilder Node(const Descriptor& pointwise, const Descriptor& x,
                                       const Descriptor& y) const {
    DescriptorBuilder node(cudnn_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                           "describing a step of the epilogue");
    node.Child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise)
        .Child(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
        .Child(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return node;
  }

  const Cudnn& cudnn_;
  const cudnnDataType_t type_;
};

// The convolution. `sums`: the id of its result where that is in no memory, or 0.
Result<Descriptor> MakeNode(const Cudnn& cudnn, const ConvolutionGraph& graph, int64_t sums) {
  const NodeNames names = NamesOf(graph.direction);
  const DType sum = AccumulatorOf(graph.layout[0].dtype);
  OOC_ASSIGN(const Descriptor convolution, MakeConvolution(cudnn, graph.shape, sum));
  DescriptorBuilder node(cudnn, names.type, "describing the operation");
  node.Child(names.convolution, convolution);
  for (int i = 0; i < static_cast<int>(names.tensor.size()); ++i) {
    const bool virtual_sums = i == Index(OutputOf(graph.direction)) && sums != 0;
    const TileLayout layout = virtual_sums ? SumsOf(graph) : graph.layout[i];
    OOC_ASSIGN(const Descriptor tensor,
               MakeTensor(cudnn, graph.shape, i, layout, virtual_sums ? sums : 0));
    node.Child(names.tensor[i], tensor);
  }
  const double beta = graph.adds ? 1.0 : 0.0;
  if (sum == DType::kFloat64) {
    node.One(names.alpha, CUDNN_TYPE_DOUBLE, 1.0).One(names.beta, CUDNN_TYPE_DOUBLE, beta);
  } else {
    node.One(names.alpha, CUDNN_TYPE_FLOAT, 1.0F);
    node.One(names.beta, CUDNN_TYPE_FLOAT, static_cast<float>(beta));
  }
  return node.Finalize();
}

// The nodes of the graph in their order.
Result<std::vector<Descriptor>> MakeNodes(const Cudnn& cudnn, const ConvolutionGraph& graph) {
  const Epilogue& epilogue = graph.epilogue;
  const bool cuts = epilogue.activation != Activation::kIdentity;
  std::vector<Descriptor> nodes;
  OOC_ASSIGN(Descriptor convolution, MakeNode(cudnn, graph, epilogue.empty() ? 0 : kSumId));
  nodes.push_back(std::move(convolution));
  if (epilogue.empty()) return nodes;
  const int output = Index(OutputOf(graph.direction));
  const auto tensor = [&](int operand, const TileLayout& layout, int64_t id) {
    return MakeTensor(cudnn, graph.shape, operand, layout, id);
  };
  const TileLayout sums = SumsOf(graph);
  const PointwiseNode pointwise(cudnn, graph);
  OOC_ASSIGN(const Descriptor y, tensor(output, graph.layout[output], 0));
  OOC_ASSIGN(Descriptor from, tensor(output, sums, kSumId));
  if (epilogue.bias) {
    const int bias = Index(Operand::kBias);
    OOC_ASSIGN(const Descriptor b, tensor(bias, graph.layout[bias], 0));
    OOC_ASSIGN(Descriptor biased, tensor(output, sums, kBiasedId));
    OOC_ASSIGN(Descriptor node, pointwise.Add(from, b, cuts ? biased : y));
    nodes.push_back(std::move(node));
    from = std::move(biased);
  }
  if (cuts) {
    OOC_ASSIGN(Descriptor node, pointwise.Cut(epilogue, from, y));
    nodes.push_back(std::move(node));
  }
  return nodes;
}

TensorLayouts Lay(const TileOp& op, ChannelOrder order, DType in, DType out) {
  TensorLayouts layouts;
  for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY}) {
    const DimOrder& dims = order == ChannelOrder::kPlanes ? kDenseOrder
                           : operand == Operand::kW       ? kInputFastestOrder
                                                          : kChannelsLastOrder;
    layouts[Index(operand)] = PlainLayout(operand == OutputOf(op.direction) ? out : in,
                                          op.shape.DimsOf(operand, op.direction), dims);
  }
  return layouts;
}

}  // namespace

const char* Name(ChannelOrder order) { return order == ChannelOrder::kInnermost ? "nhwc" : "nchw"; }

bool MayUseTensorCores(const TileOp& op) {
  return op.dtype != DType::kFloat32 || op.math == Math::kTf32;
}

ConvolutionGraph GraphOf(const TileOp& op, ChannelOrder order) {
  const bool sums = op.accumulates || op.out_dtype != op.dtype;
  const DType dtype = sums ? AccumulatorOf(op.dtype) : op.dtype;
  ConvolutionGraph graph{op.direction, op.shape, Lay(op, order, dtype, dtype), op.accumulates, {}};
  graph.epilogue = op.epilogue;
  if (op.epilogue.bias) {
    graph.layout[Index(Operand::kBias)] =
        PlainLayout(AccumulatorOf(op.dtype), op.shape.DimsOf(Operand::kBias, op.direction),
                    order == ChannelOrder::kPlanes ? kDenseOrder : kChannelsLastOrder);
  }
  return graph;
}

ConvolutionGraph MixedGraphOf(const TileOp& op, ChannelOrder order) {
  const DType sum = AccumulatorOf(op.dtype);
  return {op.direction, op.shape, Lay(op, order, op.dtype, sum), false, {}};
}

Result<Descriptor> MakeGraph(const Cudnn& cudnn, cudnnHandle_t handle,
                             const ConvolutionGraph& graph) {
  OOC_ASSIGN(const std::vector<Descriptor> nodes, MakeNodes(cudnn, graph));
  return DescriptorBuilder(cudnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "making the graph")
      .One(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle)
      .Children(CUDNN_ATTR_OPERATIONGRAPH_OPS, nodes)
      .Finalize();
}

Result<Descriptor> MakeVariantPack(const Cudnn& cudnn, const ConvolutionGraph& graph,
                                   const std::array<void*, kOperands>& tile, void* workspace) {
  std::vector<int64_t> ids;
  ids.reserve(static_cast<size_t>(graph.tensors()));
  for (int i = 0; i < graph.tensors(); ++i) ids.push_back(IdOf(i));
  return DescriptorBuilder(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "naming the tiles")
      .Ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, graph.tensors(), tile.data())
      .One(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace)
      .Finalize();
}

}  // namespace oocdnn::cuda
