// Shapes, inputs, one run, and the comparison with the reference.
#include "testing/conformance_conv.hpp"

#include <cmath>

#include "base/checked.hpp"

namespace oocdnn::testing {
namespace {

// Half the distance of 1 to the next number.
double RoundoffOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 0x1p-24;
    case DType::kFloat64: return 0x1p-53;
    case DType::kFloat16: return 0x1p-11;
    case DType::kBFloat16: return 0x1p-8;
    case DType::kByte: break;
  }
  return 0.0;
}

// Planning goes by what the engine claims, so its executables may claim more, but not less.
Status ExpectClaims(const Properties& engine, const Properties& executable) {
  OOC_EXPECT((executable.exact || !engine.exact) && (executable.invariant || !engine.invariant) &&
                 (executable.deterministic || !engine.deterministic) &&
                 (executable.nan_local || !engine.nan_local),
             "the executable takes back a property that its engine claims");
  return {};
}

Status ExpectRefusal(const Status& refusal) {
  const bool expected =
      refusal.code() == Code::kUnsupported || refusal.code() == Code::kOutOfMemory;
  OOC_EXPECT(expected, "refused with \"%s\": %s", CodeName(refusal.code()),
             refusal.message().c_str());
  OOC_EXPECT(!refusal.message().empty(), "refused without a reason");
  return {};
}

// An engine may keep a tile in a wider type than it was asked for, never in a narrower one.
Status ExpectLayout(const TileLayout& layout, const Dims& dims, DType dtype) {
  OOC_EXPECT(layout.shape == dims, "its extents are %s", Text(layout.shape).c_str());
  OOC_EXPECT(IsValid(layout.dtype) && SizeOf(layout.dtype) >= SizeOf(dtype), "it holds %s",
             Name(layout.dtype));
  OOC_EXPECT(layout.bytes >= ElementsOf(dims) * SizeOf(layout.dtype), "it has only %lld bytes",
             static_cast<long long>(layout.bytes));
  return {};
}

Status ExpectStatements(const EngineInfo& info, const TileOp& op, const Executable& executable) {
  // The engine's name, and after a space what it is made of.
  OOC_EXPECT((executable.engine() + " ").starts_with(info.name + " "),
             "the executable calls itself \"%s\"", executable.engine().c_str());
  const int64_t workspace = executable.workspace_bytes();
  OOC_EXPECT(workspace >= 0 && workspace <= op.workspace_limit,
             "a workspace of %lld bytes passes the limit", static_cast<long long>(workspace));
  OOC_TRY(ExpectClaims(info.properties, executable.properties()));
  const Operand output = OutputOf(op.direction);
  std::vector<Operand> used = InputsOf(op.direction);
  used.push_back(output);
  for (const Operand operand : used) {
    const Dims dims = op.shape.DimsOf(operand, op.direction);
    const DType dtype = operand == output ? op.out_dtype : op.dtype;
    OOC_TRY(ExpectLayout(executable.layout(operand), dims, dtype)
                .With(Format("the layout of %s", Name(operand, op.direction))));
  }
  return {};
}

}  // namespace

const std::vector<ConvShape>& Shapes() {
  static const std::vector<ConvShape> shapes = {
      // 2-D
      MakeShape(1, 1, 1, 1, {1, 1, 1}, {1, 1, 1}),
      MakeShape(2, 1, 8, 16, {1, 7, 9}, {1, 1, 1}),
      MakeShape(2, 1, 16, 8, {1, 10, 12}, {1, 3, 3}),
      MakeShape(1, 1, 7, 5, {1, 11, 13}, {1, 3, 3}, {0, 1, 1}),
      MakeShape(3, 1, 17, 3, {1, 12, 10}, {1, 3, 3}, {0, 1, 1}, {1, 2, 2}),
      MakeShape(1, 1, 4, 6, {1, 17, 15}, {1, 5, 5}, {0, 2, 2}, {1, 2, 3}),
      MakeShape(2, 1, 5, 4, {1, 15, 16}, {1, 3, 3}, {0, 2, 2}, {1, 1, 1}, {1, 2, 2}),
      MakeShape(1, 1, 3, 4, {1, 19, 14}, {1, 3, 2}, {0, 0, 1}, {1, 2, 1}, {1, 3, 2}),
      MakeShape(1, 1, 6, 3, {1, 9, 21}, {1, 1, 7}, {0, 0, 3}),
      MakeShape(2, 1, 3, 2, {1, 6, 6}, {1, 6, 6}),
      MakeShape(1, 1, 33, 31, {1, 5, 6}, {1, 3, 3}, {0, 1, 1}),
      MakeShape(1, 1, 4, 3, {1, 4, 4}, {1, 3, 3}, {0, 4, 4}),
      MakeShape(2, 1, 4, 4, {1, 13, 11}, {1, 2, 2}, {0, 0, 0}, {1, 3, 3}),
      // groups and depthwise
      MakeShape(2, 2, 4, 3, {1, 8, 9}, {1, 3, 3}, {0, 1, 1}),
      MakeShape(1, 4, 8, 8, {1, 7, 7}, {1, 3, 3}, {0, 1, 1}, {1, 2, 2}),
      MakeShape(2, 3, 5, 1, {1, 9, 8}, {1, 3, 3}, {0, 1, 1}),
      MakeShape(2, 19, 1, 1, {1, 10, 9}, {1, 3, 3}, {0, 1, 1}),
      MakeShape(1, 16, 1, 1, {1, 12, 12}, {1, 5, 5}, {0, 2, 2}, {1, 2, 2}),
      MakeShape(1, 8, 2, 1, {1, 9, 9}, {1, 3, 3}, {0, 2, 2}, {1, 1, 1}, {1, 2, 2}),
      // 1-D
      MakeShape(2, 1, 9, 7, {1, 1, 40}, {1, 1, 5}, {0, 0, 2}),
      MakeShape(3, 2, 3, 4, {1, 1, 33}, {1, 1, 3}, {0, 0, 0}, {1, 1, 2}, {1, 1, 4}),
      // 3-D
      MakeShape(1, 1, 8, 4, {5, 6, 7}, {3, 3, 3}, {1, 1, 1}),
      MakeShape(2, 1, 3, 5, {6, 5, 8}, {2, 3, 1}, {0, 1, 0}, {2, 1, 2}),
      MakeShape(1, 2, 2, 3, {7, 7, 7}, {3, 3, 3}, {2, 2, 2}, {2, 2, 2}, {2, 2, 2}),
      MakeShape(1, 6, 1, 1, {4, 6, 5}, {3, 3, 3}, {1, 1, 1}),
  };
  return shapes;
}

const std::vector<ConvShape>& FewShapes() {
  static const std::vector<ConvShape> shapes = {
      MakeShape(2, 1, 16, 8, {1, 10, 12}, {1, 3, 3}),
      MakeShape(3, 1, 17, 3, {1, 12, 10}, {1, 3, 3}, {0, 1, 1}, {1, 2, 2}),
      MakeShape(2, 2, 4, 3, {1, 8, 9}, {1, 3, 3}, {0, 1, 1}, {1, 1, 1}, {1, 2, 2}),
      MakeShape(2, 19, 1, 1, {1, 10, 9}, {1, 3, 3}, {0, 1, 1}),
      MakeShape(2, 1, 9, 7, {1, 1, 40}, {1, 1, 5}, {0, 0, 2}),
      MakeShape(2, 1, 8, 4, {5, 6, 7}, {3, 3, 3}, {1, 1, 1}),
  };
  return shapes;
}

bool Fits(const EngineInfo& engine, ConvShape* shape) {
  if (engine.symmetric_padding) return true;
  shape->pad_before = shape->pad_after = {0, 0, 0};
  bool fits = true;
  for (int s = 0; s < 3; ++s) {
    shape->out[s] =
        OutputExtent(shape->in[s], 0, 0, shape->filter[s], shape->stride[s], shape->dilation[s]);
    fits = fits && shape->out[s] > 0;
  }
  return fits;
}

std::string Describe(const EngineInfo& engine, const TileOp& op) {
  const auto three = [](const Spatial& v) {
    return Format("%lldx%lldx%lld", static_cast<long long>(v[0]), static_cast<long long>(v[1]),
                  static_cast<long long>(v[2]));
  };
  const ConvShape& s = op.shape;
  return Format(
      "engine %s, %s n%lld g%lld k%lld c%lld in %s filter %s pad %s stride %s dilation "
      "%s, %s to %s",
      engine.name.c_str(), Name(op.direction), static_cast<long long>(s.n),
      static_cast<long long>(s.g), static_cast<long long>(s.k), static_cast<long long>(s.c),
      three(s.in).c_str(), three(s.filter).c_str(), three(s.pad_before).c_str(),
      three(s.stride).c_str(), three(s.dilation).c_str(), Name(op.dtype), Name(op.out_dtype));
}

Operands MakeInputs(const TileOp& op, Filling filling, Random& random) {
  Operands inputs;
  for (const Operand operand : InputsOf(op.direction)) {
    const Dims dims = op.shape.DimsOf(operand, op.direction);
    inputs[Index(operand)] =
        filling == Filling::kIntegers ? Integers(dims, random) : Reals(dims, op.dtype, random);
  }
  return inputs;
}

Result<std::unique_ptr<Executable>> PrepareChecked(Device& device, int engine, TileOp op) {
  const EngineInfo& info = device.engines()[engine];
  op.math = info.MathFor(op.math);
  Result<std::unique_ptr<Executable>> prepared = device.Prepare(engine, op);
  const Status checked = prepared.ok() ? ExpectStatements(info, op, *prepared.value())
                                       : ExpectRefusal(prepared.status());
  if (!checked.ok()) return Status(checked).With(Describe(info, op));
  return prepared;
}

Result<Tensor> RunOnce(Device& device, Executable& executable, const TileOp& op,
                       const Operands& inputs, const Tensor* old) {
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  const Operand output = OutputOf(op.direction);
  RunArgs args;
  for (const Operand operand : InputsOf(op.direction)) {
    OOC_ASSIGN(args.tile[Index(operand)],
               rig.NewTile(inputs[Index(operand)], operand, executable.layout(operand)));
  }
  const TileLayout& layout = executable.layout(output);
  OOC_ASSIGN(void* out, rig.NewBuffer(layout.bytes));
  OOC_TRY(device.Fill(stream, out, layout.bytes, 0xff));
  if (old != nullptr) OOC_TRY(rig.Upload(*old, output, layout, out));
  if (executable.workspace_bytes() > 0) {
    OOC_ASSIGN(args.workspace, rig.NewBuffer(executable.workspace_bytes()));
    OOC_TRY(device.Fill(stream, args.workspace, executable.workspace_bytes(), 0xff));
  }
  args.tile[Index(output)] = out;
  args.accumulate = old != nullptr;
  args.tag = {0, output, nullptr};
  OOC_TRY(device.Run(stream, executable, args));
  return rig.Download(output, layout, out);
}

Status ExpectReference(const TileOp& op, const Executable& executable, const Operands& inputs,
                       Filling filling, const Tensor& seen, const Tensor* old) {
  Tensor wanted = Convolve(op.direction, op.shape, inputs);
  Tensor magnitude = Magnitude(op.direction, op.shape, inputs);
  const bool exact = filling == Filling::kIntegers && executable.properties().exact;
  const double roundoff = RoundoffOf(AccumulatorOf(op.dtype));
  const auto terms = static_cast<double>(TermsOf(op.direction, op.shape) + 2);
  std::string difference;
  ForEach({}, wanted.dims, [&](const Dims& i) {
    const double before = old == nullptr ? 0.0 : old->at(i);
    const double sum = wanted.at(i) + before;
    const double rounded = Rounded(op.out_dtype, sum);
    const double bound = terms * roundoff * (magnitude.at(i) + std::abs(before)) +
                         2 * RoundoffOf(op.out_dtype) * std::abs(sum);
    const double error = std::abs(seen.at(i) - rounded);
    const bool agrees = exact ? error == 0.0 : error <= bound;
    if (agrees || !difference.empty()) return;
    difference = Format("%.17g instead of %.17g at %s", seen.at(i), rounded, Text(i).c_str());
  });
  OOC_EXPECT(difference.empty(), "%s", difference.c_str());
  return {};
}

}  // namespace oocdnn::testing
