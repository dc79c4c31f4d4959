// The graph has one node, the convolution, and three tensors. Groups are implied by the channels of
// x and w. Axes that nobody sees are left out, because cuDNN has more engines for two dimensions.
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

// The first of the three spatial axes that cuDNN is told of.
int FirstAxis(const ConvShape& shape) {
  const bool flat = shape.in[0] == 1 && shape.filter[0] == 1 && shape.out[0] == 1;
  return flat && shape.pad_before[0] == 0 ? 1 : 0;
}

Ints Axes(const ConvShape& shape, const Spatial& values) {
  return {values.begin() + FirstAxis(shape), values.end()};
}

// Group and channel are one dimension to cuDNN: those of w are its output channels.
Result<Descriptor> MakeTensor(const Cudnn& cudnn, const ConvShape& shape, int operand,
                              const TileLayout& layout) {
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
  return DescriptorBuilder(cudnn, CUDNN_BACKEND_TENSOR_DESCRIPTOR, "describing a tile")
      .One(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, TypeOf(layout.dtype))
      .Ints(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
      .Ints(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .Int(CUDNN_ATTR_TENSOR_UNIQUE_ID, IdOf(operand))
      .Int(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment)
      .Finalize();
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
  std::array<cudnnBackendAttributeName_t, kTensors> tensor;
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

Result<Descriptor> MakeNode(const Cudnn& cudnn, const ConvolutionGraph& graph) {
  const NodeNames names = NamesOf(graph.direction);
  const DType sum = AccumulatorOf(graph.layout[0].dtype);
  OOC_ASSIGN(const Descriptor convolution, MakeConvolution(cudnn, graph.shape, sum));
  DescriptorBuilder node(cudnn, names.type, "describing the operation");
  node.Child(names.convolution, convolution);
  for (int i = 0; i < kTensors; ++i) {
    OOC_ASSIGN(const Descriptor tensor, MakeTensor(cudnn, graph.shape, i, graph.layout[i]));
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
  return {op.direction, op.shape, Lay(op, order, dtype, dtype), op.accumulates};
}

ConvolutionGraph MixedGraphOf(const TileOp& op, ChannelOrder order) {
  return {op.direction, op.shape, Lay(op, order, op.dtype, AccumulatorOf(op.dtype)), false};
}

Result<Descriptor> MakeGraph(const Cudnn& cudnn, cudnnHandle_t handle,
                             const ConvolutionGraph& graph) {
  OOC_ASSIGN(const Descriptor node, MakeNode(cudnn, graph));
  return DescriptorBuilder(cudnn, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "making the graph")
      .One(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle)
      .Child(CUDNN_ATTR_OPERATIONGRAPH_OPS, node)
      .Finalize();
}

Result<Descriptor> MakeVariantPack(const Cudnn& cudnn, const std::array<void*, kOperands>& tile,
                                   void* workspace) {
  const std::array<int64_t, kTensors> ids{IdOf(0), IdOf(1), IdOf(2)};
  return DescriptorBuilder(cudnn, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "naming the tiles")
      .Ints(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, kTensors, tile.data())
      .One(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace)
      .Finalize();
}

}  // namespace oocdnn::cuda
