// Finish: the pass over a finished sum, for every part of the epilogue, type and layout.
#include <cmath>
#include <limits>

#include "testing/conformance_boxes.hpp"
#include "testing/conformance_conv.hpp"

namespace oocdnn::testing {
namespace {

// One pass: what it is asked for, and the tensors that it meets.
struct Pass {
  Operand operand = Operand::kY;
  TileLayout layout;
  Epilogue epilogue;
  double alpha = 1.0, beta = 0.0;
  Tensor out, old, residual, bias, scale;

  [[nodiscard]] std::string Describe() const {
    return Format(
        "finish of a %s tile of %s %s, block %lld, alpha %g, beta %g, scale %d, bias %d, "
        "residual %d, activation %d",
        Name(layout.dtype), Name(operand, Direction::kForward), Text(layout.shape).c_str(),
        static_cast<long long>(layout.channel_block), alpha, beta, epilogue.scale, epilogue.bias,
        epilogue.residual, static_cast<int>(epilogue.activation));
  }
};

Pass MakePass(Operand operand, const TileLayout& layout, Random& random) {
  Pass pass;
  pass.operand = operand;
  pass.layout = layout;
  const Dims channels{1, 1, layout.shape[1] * layout.shape[2], 1, 1, 1};
  pass.out = Integers(layout.shape, random);
  pass.old = Integers(layout.shape, random);
  pass.residual = Integers(layout.shape, random);
  pass.bias = Integers(channels, random);
  pass.scale = Integers(channels, random);
  return pass;
}

double Activate(const Epilogue& epilogue, double v) {
  const double p = epilogue.parameter;
  switch (epilogue.activation) {
    case Activation::kIdentity: return v;
    case Activation::kRelu: return v < 0 ? 0 : v;
    case Activation::kClippedRelu: return v < 0 ? 0 : (v > p ? p : v);
    case Activation::kElu: return v > 0 ? v : p * std::expm1(v);
    case Activation::kSigmoid: return 1 / (1 + std::exp(-v));
    case Activation::kTanh: return std::tanh(v);
    case Activation::kSwish: return v / (1 + std::exp(-p * v));
    case Activation::kSoftplus: return std::log1p(std::exp(p * v)) / p;
  }
  return v;
}

Tensor Expected(const Pass& pass) {
  Tensor wanted = pass.out;
  ForEach({}, wanted.dims, [&](const Dims& i) {
    const Dims channel{0, 0, i[1] * wanted.dims[2] + i[2], 0, 0, 0};
    double v = pass.alpha * pass.out.at(i);
    if (pass.epilogue.scale) v *= pass.scale.at(channel);
    if (pass.epilogue.bias) v += pass.bias.at(channel);
    if (pass.epilogue.residual) v += pass.epilogue.residual_alpha * pass.residual.at(i);
    if (pass.beta != 0.0) v += pass.beta * pass.old.at(i);
    wanted.at(i) = Activate(pass.epilogue, v);
  });
  return wanted;
}

// Runs the pass; `poison_old` hands over an old output of NaN.
Result<Tensor> RunPass(Device& device, const Pass& pass, bool poison_old) {
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  const TileLayout vector = PlainLayout(AccumulatorOf(pass.layout.dtype), pass.bias.dims);
  FinishArgs args;
  args.operand = pass.operand;
  args.layout = &pass.layout;
  args.alpha = pass.alpha;
  args.beta = pass.beta;
  args.epilogue = pass.epilogue;
  args.tag.operand = pass.operand;
  OOC_ASSIGN(args.out, rig.NewTile(pass.out, pass.operand, pass.layout));
  if (pass.beta != 0.0 || poison_old) {
    OOC_ASSIGN(void* old, rig.NewTile(pass.old, pass.operand, pass.layout));
    if (poison_old) OOC_TRY(device.Fill(stream, old, pass.layout.bytes, 0xff));
    args.old = old;
  }
  if (pass.epilogue.residual) {
    OOC_ASSIGN(args.residual, rig.NewTile(pass.residual, pass.operand, pass.layout));
  }
  if (pass.epilogue.bias) {
    OOC_ASSIGN(args.bias, rig.NewTile(pass.bias, Operand::kBias, vector));
  }
  if (pass.epilogue.scale) {
    OOC_ASSIGN(args.scale, rig.NewTile(pass.scale, Operand::kScale, vector));
  }
  OOC_TRY(device.Finish(stream, args));
  return rig.Download(pass.operand, pass.layout, args.out);
}

double ToleranceOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 1e-6;
    case DType::kFloat64: return 1e-14;
    case DType::kFloat16: return 0x1p-10;
    case DType::kBFloat16: return 0x1p-7;
    case DType::kByte: break;
  }
  return 0.0;
}

bool IsCurved(Activation activation) { return activation >= Activation::kElu; }

// Straight lines over whole numbers are exact, down to the sign of a zero; curves are not.
Status ExpectPass(Device& device, const Pass& pass, bool poison_old = false) {
  OOC_ASSIGN(const Tensor seen, RunPass(device, pass, poison_old));
  const Tensor wanted = Expected(pass);
  const double tolerance =
      IsCurved(pass.epilogue.activation) ? ToleranceOf(pass.layout.dtype) : 0.0;
  std::string difference;
  ForEach({}, wanted.dims, [&](const Dims& i) {
    const double a = seen.at(i), b = wanted.at(i);
    const bool same = tolerance > 0.0 || std::signbit(a) == std::signbit(b);
    const bool close = std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
    if ((close && same) || (std::isnan(a) && std::isnan(b)) || !difference.empty()) return;
    difference = Format("%.17g instead of %.17g at %s", a, b, Text(i).c_str());
  });
  OOC_EXPECT(difference.empty(), "%s: %s", pass.Describe().c_str(), difference.c_str());
  return {};
}

constexpr Dims kShape{2, 2, 5, 2, 3, 7};

std::vector<TileLayout> Layouts(const Device& device, DType dtype) {
  std::vector<TileLayout> layouts{PlainLayout(dtype, kShape), PlainLayout(dtype, kShape, true)};
  if (device.capabilities().blocked_tiles) layouts.push_back(BlockedLayout(dtype, kShape, 8));
  return layouts;
}

// Every part of the epilogue alone and all together, in every layout and type.
Status EveryPart(Device& device) {
  Random random(21);
  for (const DType dtype : kAllDTypes) {
    for (const TileLayout& layout : Layouts(device, dtype)) {
      for (unsigned parts = 0; parts < 32; ++parts) {
        Pass pass = MakePass(parts % 2 == 0 ? Operand::kY : Operand::kX, layout, random);
        pass.epilogue.scale = (parts & 1u) != 0;
        pass.epilogue.bias = (parts & 2u) != 0;
        pass.epilogue.residual = (parts & 4u) != 0;
        pass.epilogue.residual_alpha = 0.5;
        pass.beta = (parts & 8u) != 0 ? -2.0 : 0.0;
        pass.alpha = (parts & 16u) != 0 ? 2.0 : 1.0;
        OOC_TRY(ExpectPass(device, pass));
      }
    }
  }
  return {};
}

Status EveryActivation(Device& device) {
  Random random(22);
  for (const DType dtype : kAllDTypes) {
    for (const TileLayout& layout : Layouts(device, dtype)) {
      for (int a = 0; a < kActivations; ++a) {
        Pass pass = MakePass(Operand::kY, layout, random);
        pass.epilogue.activation = static_cast<Activation>(a);
        pass.epilogue.parameter = 1.5;
        pass.epilogue.bias = true;
        OOC_TRY(ExpectPass(device, pass));
      }
    }
  }
  return {};
}

// A zero leaves with its sign, where nothing is added to it as where something is.
Status KeepsSignsOfZeros(Device& device) {
  Random random(27);
  for (const DType dtype : kAllDTypes) {
    for (const TileLayout& layout : Layouts(device, dtype)) {
      for (const Activation activation :
           {Activation::kIdentity, Activation::kRelu, Activation::kClippedRelu}) {
        for (const bool bias : {false, true}) {
          Pass pass = MakePass(Operand::kY, layout, random);
          pass.epilogue.activation = activation;
          pass.epilogue.parameter = 1.5;
          pass.epilogue.bias = bias;
          for (Tensor* tensor : {&pass.out, &pass.bias}) {
            for (double& value : tensor->values) {
              if (random.Between(0, 1) == 0) value = random.Between(0, 3) == 0 ? 0.0 : -0.0;
            }
          }
          OOC_TRY(ExpectPass(device, pass));
        }
      }
    }
  }
  return {};
}

// A NaN of the sum is a NaN of the output, whatever the activation.
Status NanPassesActivations(Device& device) {
  Random random(23);
  for (int a = 0; a < kActivations; ++a) {
    Pass pass = MakePass(Operand::kY, PlainLayout(DType::kFloat32, kShape), random);
    pass.epilogue.activation = static_cast<Activation>(a);
    pass.epilogue.parameter = 1.5;
    pass.out.values[7] = std::numeric_limits<double>::quiet_NaN();
    OOC_TRY(ExpectPass(device, pass));
  }
  return {};
}

// Outputs that are no activations: dw and db know alpha and beta only.
Status GradientsOfParameters(Device& device) {
  Random random(24);
  for (const DType dtype : kAllDTypes) {
    for (const Operand operand : {Operand::kW, Operand::kBias}) {
      const Dims dims = operand == Operand::kW ? Dims{2, 3, 5, 1, 3, 3} : Dims{1, 2, 5, 1, 1, 1};
      Pass pass = MakePass(operand, PlainLayout(dtype, dims), random);
      pass.alpha = 0.5;
      OOC_TRY(ExpectPass(device, pass));
      pass.beta = 2.0;
      OOC_TRY(ExpectPass(device, pass));
    }
  }
  return {};
}

Status BetaZeroNeverReadsOld(Device& device) {
  Random random(25);
  for (const DType dtype : kAllDTypes) {
    for (const TileLayout& layout : Layouts(device, dtype)) {
      for (int a = 0; a < kActivations; ++a) {
        Pass pass = MakePass(Operand::kY, layout, random);
        pass.alpha = 2.0;
        pass.epilogue.bias = true;
        pass.epilogue.activation = static_cast<Activation>(a);
        pass.epilogue.parameter = 1.5;
        OOC_TRY(ExpectPass(device, pass, true));
      }
    }
  }
  return {};
}

// The layouts that engines choose for their outputs.
Status OnLayoutsOfEngines(Device& device) {
  Random random(26);
  const auto engines = static_cast<int>(device.engines().size());
  for (int engine = 0; engine < engines; ++engine) {
    const EngineInfo& info = device.engines()[engine];
    for (const Direction direction : kAllDirections) {
      for (ConvShape shape : FewShapes()) {
        if (!Fits(info, &shape)) continue;
        TileOp op;
        op.direction = direction;
        op.shape = shape;
        Result<std::unique_ptr<Executable>> prepared = PrepareChecked(device, engine, op);
        if (prepared.status().code() == Code::kUnsupported) continue;
        OOC_TRY(prepared.status());
        const Operand output = OutputOf(direction);
        Pass pass = MakePass(output, prepared.value()->layout(output), random);
        pass.alpha = 2.0;
        pass.beta = 0.5;
        const bool channels =
            !pass.layout.opaque && (output == Operand::kX || output == Operand::kY);
        pass.epilogue.bias = pass.epilogue.scale = channels;
        OOC_TRY(ExpectPass(device, pass).With(Describe(info, op)));
      }
    }
  }
  return {};
}

constexpr Case kCases[] = {
    {"finish_every_part", EveryPart},
    {"finish_every_activation", EveryActivation},
    {"finish_keeps_signs_of_zeros", KeepsSignsOfZeros},
    {"finish_passes_nan", NanPassesActivations},
    {"finish_gradients_of_parameters", GradientsOfParameters},
    {"finish_beta_zero_never_reads_old", BetaZeroNeverReadsOld},
    {"finish_on_layouts_of_engines", OnLayoutsOfEngines},
};

}  // namespace

std::span<const Case> FinishCases() { return kCases; }

}  // namespace oocdnn::testing
