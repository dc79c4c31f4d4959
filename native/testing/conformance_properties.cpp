// The four properties: whatever an executable claims must hold. `exact` is held by the cases that
// compare whole numbers with the reference; the other three are here.
#include <cmath>
#include <limits>

#include "testing/conformance_tiled.hpp"

namespace oocdnn::testing {
namespace {

// A few sizes at which fast engines block and unroll, beside those of every feature.
const std::vector<ConvShape>& PropertyShapes() {
  static const std::vector<ConvShape> shapes = [] {
    std::vector<ConvShape> all = FewShapes();
    all.push_back(MakeShape(1, 1, 24, 20, {1, 14, 13}, {1, 3, 3}, {0, 1, 1}));
    all.push_back(MakeShape(2, 1, 33, 40, {1, 9, 11}, {1, 1, 1}));
    all.push_back(MakeShape(1, 1, 9, 11, {1, 19, 17}, {1, 5, 3}, {0, 2, 1}, {1, 2, 2}));
    return all;
  }();
  return shapes;
}

// Calls check(engine, problem, executable of one tile that is the whole) for all that engines take.
template <class Check>
Status ForEachExecutable(Device& device, DType dtype, Check check) {
  const auto engines = static_cast<int>(device.engines().size());
  for (int engine = 0; engine < engines; ++engine) {
    const EngineInfo& info = device.engines()[engine];
    for (const Direction direction : kAllDirections) {
      for (const ConvShape& shape : PropertyShapes()) {
        const Problem problem = MakeProblem(direction, shape, dtype);
        const TileOp op = TileOpOf(problem, WholeTiling(problem, !info.symmetric_padding));
        Result<std::unique_ptr<Executable>> prepared = PrepareChecked(device, engine, op);
        if (prepared.status().code() == Code::kUnsupported) continue;
        OOC_TRY(prepared.status());
        OOC_TRY(check(engine, problem, *prepared.value()).With(Describe(info, op)));
      }
    }
  }
  return {};
}

Status Unclaimed(const char* property) {
  return Error(Code::kUnsupported, "no engine claims to be %s", property);
}

Status ExpectInvariant(Device& device, int engine, const Problem& problem, const Operands& inputs,
                       const Tensor& whole, Random& random) {
  const EngineInfo& info = device.engines()[engine];
  const Tiling tiling = RandomTiling(problem, !info.symmetric_padding, random);
  const TileOp op = TileOpOf(problem, tiling);
  Result<std::unique_ptr<Executable>> prepared = PrepareChecked(device, engine, op);
  OOC_TRY(prepared.status().code() == Code::kUnsupported ? Status() : prepared.status());
  if (!prepared.ok()) return {};
  if (!prepared.value()->properties().invariant) return {};
  OOC_ASSIGN(const Tensor tiled, RunTiled(device, *prepared.value(), problem, tiling, inputs));
  const std::string difference = FirstDifference(tiled, whole, Equality::kBits);
  OOC_EXPECT(difference.empty(), "%s: claims to be invariant, but %s", Text(tiling).c_str(),
             difference.c_str());
  return {};
}

template <DType kDType>
Status Invariant(Device& device) {
  int claims = 0;
  Random random(11);
  const auto check = [&](int engine, const Problem& problem, Executable& executable) -> Status {
    if (!executable.properties().invariant) return {};
    ++claims;
    const Tiling uncut = WholeTiling(problem, !device.engines()[engine].symmetric_padding);
    const Operands inputs = MakeInputs(problem, Filling::kReals, random);
    OOC_ASSIGN(const Tensor whole, RunTiled(device, executable, problem, uncut, inputs));
    for (int round = 0; round < 4; ++round) {
      OOC_TRY(ExpectInvariant(device, engine, problem, inputs, whole, random));
    }
    return {};
  };
  OOC_TRY(ForEachExecutable(device, kDType, check));
  return claims > 0 ? Status() : Unclaimed("invariant");
}

Status Deterministic(Device& device) {
  int claims = 0;
  Random random(12);
  const auto check = [&](int engine, const Problem& problem, Executable& executable) -> Status {
    if (!executable.properties().deterministic) return {};
    ++claims;
    const Tiling uncut = WholeTiling(problem, !device.engines()[engine].symmetric_padding);
    const TileOp op = TileOpOf(problem, uncut);
    const Operands inputs = MakeInputs(op, Filling::kReals, random);
    OOC_ASSIGN(const Tensor first, RunOnce(device, executable, op, inputs));
    for (int round = 1; round < 10; ++round) {
      OOC_ASSIGN(const Tensor again, RunOnce(device, executable, op, inputs));
      const std::string difference = FirstDifference(again, first, Equality::kBits);
      OOC_EXPECT(difference.empty(), "claims to be deterministic, but run %d gives %s", round,
                 difference.c_str());
    }
    return {};
  };
  OOC_TRY(ForEachExecutable(device, DType::kFloat32, check));
  return claims > 0 ? Status() : Unclaimed("deterministic");
}

// 1 where the tensor holds NaN, else 0.
Tensor NanMask(Tensor tensor) {
  for (double& value : tensor.values) value = std::isnan(value) ? 1.0 : 0.0;
  return tensor;
}

// Plants one NaN in `operand` and compares where it arrives with where it should.
Status ExpectNanLocal(Device& device, Executable& executable, const Problem& problem,
                      const Tiling& tiling, Operand operand, Random& random) {
  Operands inputs = MakeInputs(problem, Filling::kIntegers, random);
  std::vector<double>& values = inputs[Index(operand)].values;
  const int64_t where = random.Between(0, static_cast<int64_t>(values.size()) - 1);
  values[static_cast<size_t>(where)] = std::numeric_limits<double>::quiet_NaN();
  OOC_ASSIGN(Tensor seen, RunTiled(device, executable, problem, tiling, inputs));
  const Tensor wanted = NanMask(Convolve(problem.direction, problem.shape, inputs));
  const std::string difference = FirstDifference(NanMask(std::move(seen)), wanted);
  OOC_EXPECT(difference.empty(), "%s, NaN at element %lld of %s: the output's NaN mask is %s",
             Text(tiling).c_str(), static_cast<long long>(where), Name(operand, problem.direction),
             difference.c_str());
  return {};
}

Status NanLocal(Device& device) {
  int claims = 0;
  Random random(13);
  const auto check = [&](int engine, const Problem& problem, Executable& executable) -> Status {
    if (!executable.properties().nan_local) return {};
    ++claims;
    const bool as_data = !device.engines()[engine].symmetric_padding;
    for (const Operand operand : InputsOf(problem.direction)) {
      OOC_TRY(ExpectNanLocal(device, executable, problem, WholeTiling(problem, as_data), operand,
                             random));
      const Tiling cut = RandomTiling(problem, as_data, random);
      Result<std::unique_ptr<Executable>> tile =
          PrepareChecked(device, engine, TileOpOf(problem, cut));
      if (tile.status().code() == Code::kUnsupported) continue;
      OOC_TRY(tile.status());
      OOC_TRY(ExpectNanLocal(device, *tile.value(), problem, cut, operand, random));
    }
    return {};
  };
  OOC_TRY(ForEachExecutable(device, DType::kFloat32, check));
  return claims > 0 ? Status() : Unclaimed("nan_local");
}

// Who asks for reproducible results gets invariant engines or a refusal.
Status ReproducibleMeansInvariant(Device& device) {
  const auto engines = static_cast<int>(device.engines().size());
  for (int engine = 0; engine < engines; ++engine) {
    for (const Direction direction : kAllDirections) {
      for (ConvShape shape : FewShapes()) {
        if (!Fits(device.engines()[engine], &shape)) continue;
        TileOp op;
        op.direction = direction;
        op.shape = shape;
        op.reproducible = true;
        Result<std::unique_ptr<Executable>> prepared = PrepareChecked(device, engine, op);
        if (prepared.status().code() == Code::kUnsupported) continue;
        OOC_TRY(prepared.status());
        OOC_EXPECT(prepared.value()->properties().invariant,
                   "%s: prepared as reproducible, but does not claim to be invariant",
                   Describe(device.engines()[engine], op).c_str());
      }
    }
  }
  return {};
}

constexpr Case kCases[] = {
    {"invariant_f32", Invariant<DType::kFloat32>},
    {"invariant_f64", Invariant<DType::kFloat64>},
    {"invariant_f16", Invariant<DType::kFloat16>},
    {"invariant_bf16", Invariant<DType::kBFloat16>},
    {"deterministic", Deterministic},
    {"nan_local", NanLocal},
    {"reproducible_means_invariant", ReproducibleMeansInvariant},
};

}  // namespace

std::span<const Case> PropertyCases() { return kCases; }

}  // namespace oocdnn::testing
