// Engines that finish their sums: bias and activation, and one rounding behind these.
#include <algorithm>

#include "testing/conformance_conv.hpp"

namespace oocdnn::testing {
namespace {

Epilogue Of(bool bias, Activation activation, double parameter = 0.0) {
  Epilogue epilogue;
  epilogue.bias = bias;
  epilogue.activation = activation;
  epilogue.parameter = parameter;
  return epilogue;
}

// Of channels by eights and of others.
std::vector<ConvShape> Tiles() {
  std::vector<ConvShape> shapes = FewShapes();
  shapes.push_back(MakeShape(2, 1, 16, 8, {1, 7, 9}, {1, 1, 1}));
  shapes.push_back(MakeShape(1, 1, 24, 16, {1, 11, 13}, {1, 3, 3}, {0, 1, 1}));
  shapes.push_back(MakeShape(3, 1, 8, 32, {1, 12, 10}, {1, 3, 3}, {0, 1, 1}, {1, 2, 2}));
  shapes.push_back(MakeShape(1, 1, 32, 8, {5, 6, 7}, {3, 3, 3}, {1, 1, 1}));
  return shapes;
}

// With values between those of the 16-bit types, so that a rounding before them is seen.
Tensor BiasOf(const TileOp& op, Random& random) {
  Tensor bias = Integers(op.shape.DimsOf(Operand::kBias, op.direction), random);
  for (double& value : bias.values) value = value * 65.0 + 0.125;
  return bias;
}

Tensor Wanted(const TileOp& op, const Operands& inputs, const Tensor& bias) {
  Tensor wanted = Convolve(op.direction, op.shape, inputs);
  ForEach({}, wanted.dims, [&](const Dims& at) {
    double value = wanted.at(at);
    if (op.epilogue.bias) value += bias.at({0, at[1], at[2], 0, 0, 0});
    if (op.epilogue.activation != Activation::kIdentity) value = std::max(value, 0.0);
    if (op.epilogue.activation == Activation::kClippedRelu) {
      value = std::min(value, op.epilogue.parameter);
    }
    wanted.at(at) = Rounded(op.out_dtype, value);
  });
  return wanted;
}

Result<Tensor> Run(Device& device, Executable& executable, const TileOp& op, const Operands& inputs,
                   const Tensor& bias) {
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  RunArgs args;
  for (const Operand operand : {Operand::kX, Operand::kW}) {
    OOC_ASSIGN(args.tile[Index(operand)],
               rig.NewTile(inputs[Index(operand)], operand, executable.layout(operand)));
  }
  const TileLayout& y = executable.layout(Operand::kY);
  OOC_ASSIGN(args.tile[Index(Operand::kY)], rig.NewBuffer(y.bytes));
  OOC_TRY(device.Fill(stream, args.tile[Index(Operand::kY)], y.bytes, 0xff));
  if (op.epilogue.bias) {
    const TileLayout& layout = executable.layout(Operand::kBias);
    OOC_EXPECT(layout.dtype == AccumulatorOf(op.dtype) && layout.shape == bias.dims,
               "the tile of the bias is not that of one value per channel, as sums are");
    OOC_ASSIGN(args.tile[Index(Operand::kBias)], rig.NewTile(bias, Operand::kBias, layout));
  }
  if (executable.workspace_bytes() > 0) {
    OOC_ASSIGN(args.workspace, rig.NewBuffer(executable.workspace_bytes()));
  }
  OOC_TRY(device.Run(stream, executable, args));
  return rig.Download(Operand::kY, y, args.tile[Index(Operand::kY)]);
}

// Counts what ran; an engine may refuse a shape.
Status RunOne(Device& device, int engine, const TileOp& op, int* ran) {
  Result<std::unique_ptr<Executable>> executable = PrepareChecked(device, engine, op);
  if (executable.status().code() == Code::kUnsupported) return {};
  OOC_TRY(executable.status());
  ++*ran;
  Random random(static_cast<uint64_t>(op.shape.n * 1000 + op.shape.k));
  const Operands inputs = MakeInputs(op, Filling::kIntegers, random);
  const Tensor bias = BiasOf(op, random);
  const std::string what = Describe(device.engines()[engine], op);
  Result<Tensor> seen = Run(device, *executable.value(), op, inputs, bias);
  if (!seen.ok()) return std::move(seen).status().With(what);
  const std::string difference = FirstDifference(seen.value(), Wanted(op, inputs, bias));
  OOC_EXPECT(difference.empty(), "%s, finished: %s", what.c_str(), difference.c_str());
  return {};
}

Status FinishesSums(Device& device) {
  const Epilogue kEpilogues[] = {Of(true, Activation::kRelu), Of(true, Activation::kIdentity),
                                 Of(false, Activation::kRelu),
                                 Of(true, Activation::kClippedRelu, 50.0)};
  for (size_t e = 0; e < device.engines().size(); ++e) {
    if (!device.engines()[e].finishes) continue;
    int ran = 0;
    for (const Epilogue& epilogue : kEpilogues) {
      for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
        for (const ConvShape& shape : Tiles()) {
          TileOp op;
          op.shape = shape;
          op.dtype = op.out_dtype = dtype;
          op.epilogue = epilogue;
          op.may_compile = true;
          OOC_TRY(RunOne(device, static_cast<int>(e), op, &ran));
        }
      }
    }
    OOC_EXPECT(ran > 0, "%s says that it finishes sums, and does none",
               device.engines()[e].name.c_str());
  }
  return {};
}

constexpr Case kCases[] = {{"engine_finishes_sums", FinishesSums}};

}  // namespace

std::span<const Case> EpilogueCases() { return kCases; }

}  // namespace oocdnn::testing
