// The four properties: whatever an executable claims must hold. `exact` is held by the cases that
// compare whole numbers with the reference; the other three are here.
#include <cmath>
#include <limits>
#include <optional>

#include "model/price/orders.hpp"
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

// Sums of several blocks, and of several groups of them.
const std::vector<ConvShape>& LongSums(Direction direction) {
  static const std::vector<ConvShape> pixels = {
      MakeShape(2, 1, 3, 2, {1, 1, 700}, {1, 1, 3}),
      MakeShape(2, 1, 5, 3, {1, 39, 31}, {1, 3, 3}),
      MakeShape(1, 19, 1, 1, {1, 53, 47}, {1, 3, 3}, {0, 0, 0}, {1, 2, 2}),
      MakeShape(2, 1, 2, 17, {9, 12, 10}, {3, 3, 2}),
      MakeShape(23, 1, 3, 2, {1, 9, 11}, {1, 3, 3}),
  };
  static const std::vector<ConvShape> channels = {
      MakeShape(1, 1, 3, 70001, {1, 1, 2}, {1, 1, 1}),
      MakeShape(1, 1, 2, 8001, {1, 4, 4}, {1, 3, 3}),
  };
  static const std::vector<ConvShape> outputs = {
      MakeShape(1, 1, 70001, 3, {1, 1, 2}, {1, 1, 1}),
      MakeShape(1, 1, 8001, 2, {1, 4, 5}, {1, 3, 3}, {0, 0, 0}, {1, 2, 2}),
  };
  switch (direction) {
    case Direction::kForward: return channels;
    case Direction::kBackwardData: return outputs;
    default: return pixels;
  }
}

// True if the engine says that sums keep their bits where they are cut between blocks. The
// reference engine rounds sums over channels once per tile.
bool HasBlocks(const EngineInfo& engine, Direction direction) {
  const bool pixels =
      direction == Direction::kBackwardFilter || direction == Direction::kBackwardBias;
  return engine.wide_sums && (pixels || engine.name != "reference");
}

// Cuts of reductions, at which sums go on in the tile of the output.
Status ExpectInvariantSums(Device& device, int engine, const Problem& problem, Random& random,
                           int* cuts) {
  const bool as_data = !device.engines()[engine].symmetric_padding;
  const Operands inputs = MakeInputs(problem, Filling::kReals, random);
  std::optional<Tensor> whole;
  for (int round = 0; round < 4; ++round) {
    const Tiling tiling =
        round == 0 ? WholeTiling(problem, as_data) : RandomSumTiling(problem, as_data, random);
    const TileOp op = TileOpOf(problem, tiling);
    Result<std::unique_ptr<Executable>> prepared = PrepareChecked(device, engine, op);
    if (prepared.status().code() == Code::kUnsupported) return {};
    OOC_TRY(prepared.status());
    if (!prepared.value()->properties().invariant) return {};
    OOC_EXPECT(KeepsSummationOrder(problem, tiling), "%s: not in the order of the sum",
               Text(tiling).c_str());
    OOC_ASSIGN(Tensor sums, RunTiled(device, *prepared.value(), problem, tiling, inputs));
    if (!whole) {
      whole = std::move(sums);
      continue;
    }
    const std::string difference = FirstDifference(sums, *whole, Equality::kBits);
    OOC_EXPECT(difference.empty(), "%s, %s: claims to be invariant, but %s",
               Describe(device.engines()[engine], op).c_str(), Text(tiling).c_str(),
               difference.c_str());
    *cuts += tiling.Tiles() > 1 ? 1 : 0;
  }
  return {};
}

template <DType kDType>
Status InvariantSums(Device& device) {
  int cuts = 0;
  Random random(14);
  const auto engines = static_cast<int>(device.engines().size());
  for (int engine = 0; engine < engines; ++engine) {
    for (const Direction direction : kAllDirections) {
      if (!HasBlocks(device.engines()[engine], direction)) continue;
      for (const ConvShape& shape : LongSums(direction)) {
        const Problem problem = MakeProblem(direction, shape, kDType);
        OOC_TRY(ExpectInvariantSums(device, engine, problem, random, &cuts));
      }
    }
  }
  return cuts > 0 ? Status() : Unclaimed("invariant");
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
    {"invariant_sums_f32", InvariantSums<DType::kFloat32>},
    {"invariant_sums_f64", InvariantSums<DType::kFloat64>},
    {"invariant_sums_bf16", InvariantSums<DType::kBFloat16>},
    {"deterministic", Deterministic},
    {"nan_local", NanLocal},
    {"reproducible_means_invariant", ReproducibleMeansInvariant},
};

}  // namespace

std::span<const Case> PropertyCases() { return kCases; }

}  // namespace oocdnn::testing
