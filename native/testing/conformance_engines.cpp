// Engines: every direction and element type against the suite's own loops.
#include "testing/conformance_conv.hpp"

namespace oocdnn::testing {
namespace {

// What a case runs on every engine.
struct Sweep {
  Direction direction = Direction::kForward;
  DType dtype = DType::kFloat32;
  DType out_dtype = DType::kFloat32;
  bool accumulates = false;
  Filling filling = Filling::kIntegers;
};

Status RunOne(Device& device, int engine, const TileOp& op, Filling filling, int* ran) {
  Result<std::unique_ptr<Executable>> executable = PrepareChecked(device, engine, op);
  if (executable.status().code() == Code::kUnsupported) return {};
  OOC_TRY(executable.status());
  const std::string what = Describe(device.engines()[engine], op);
  Random random(static_cast<uint64_t>(op.shape.n * 1000 + op.shape.k));
  const Operands inputs = MakeInputs(op, filling, random);
  const Operand output = OutputOf(op.direction);
  const Tensor old = Integers(op.shape.DimsOf(output, op.direction), random);
  const Tensor* const start = op.accumulates ? &old : nullptr;
  Result<Tensor> seen = RunOnce(device, *executable.value(), op, inputs, start);
  if (!seen.ok()) return std::move(seen).status().With(what);
  OOC_TRY(
      ExpectReference(op, *executable.value(), inputs, filling, seen.value(), start).With(what));
  ++*ran;
  return {};
}

// Runs `sweep` on every engine and shape that it takes, and counts the runs.
Status RunSweep(Device& device, const Sweep& sweep, const std::vector<ConvShape>& shapes,
                int* ran) {
  const auto engines = static_cast<int>(device.engines().size());
  for (int engine = 0; engine < engines; ++engine) {
    for (ConvShape shape : shapes) {
      if (!Fits(device.engines()[engine], &shape)) continue;
      TileOp op;
      op.direction = sweep.direction;
      op.shape = shape;
      op.dtype = sweep.dtype;
      op.out_dtype = sweep.out_dtype;
      op.accumulates = sweep.accumulates;
      OOC_TRY(RunOne(device, engine, op, sweep.filling, ran));
    }
  }
  return {};
}

Status Conclude(int ran, const char* what) {
  return ran > 0 ? Status() : Error(Code::kUnsupported, "no engine takes %s", what);
}

template <Direction kDirection, Filling kFilling>
Status Whole(Device& device) {
  int ran = 0;
  const bool all = kFilling == Filling::kIntegers;
  OOC_TRY(RunSweep(device, {.direction = kDirection, .filling = kFilling},
                   all ? Shapes() : FewShapes(), &ran));
  return Conclude(ran, Name(kDirection));
}

template <DType kDType, bool kAccumulates>
Status OfDType(Device& device) {
  int ran = 0;
  for (const DType out : {kDType, AccumulatorOf(kDType)}) {
    if (kAccumulates && out != AccumulatorOf(kDType)) continue;
    for (const Direction direction : kAllDirections) {
      const Sweep sweep{
          .direction = direction, .dtype = kDType, .out_dtype = out, .accumulates = kAccumulates};
      OOC_TRY(RunSweep(device, sweep, FewShapes(), &ran));
    }
  }
  return Conclude(ran, Name(kDType));
}

// What an engine might refuse must be refused with a reason, and never by another error.
Status RefusalsHaveReasons(Device& device) {
  const auto engines = static_cast<int>(device.engines().size());
  for (int engine = 0; engine < engines; ++engine) {
    for (const Direction direction : kAllDirections) {
      for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
        for (ConvShape shape : Shapes()) {
          if (!Fits(device.engines()[engine], &shape)) continue;
          TileOp op;
          op.direction = direction;
          op.shape = shape;
          op.dtype = dtype;
          op.out_dtype = AccumulatorOf(dtype);
          op.workspace_limit = 0;
          const Status status = PrepareChecked(device, engine, op).status();
          const bool refused =
              status.code() == Code::kUnsupported || status.code() == Code::kOutOfMemory;
          if (!refused) OOC_TRY(status);
        }
      }
    }
  }
  return {};
}

// Only PrepareChecked's checks: what the executables state about themselves.
Status ExecutablesStateTheirTiles(Device& device) {
  const auto engines = static_cast<int>(device.engines().size());
  OOC_EXPECT(engines > 0, "the device has no engine");
  for (int engine = 0; engine < engines; ++engine) {
    for (const Direction direction : kAllDirections) {
      for (ConvShape shape : Shapes()) {
        if (!Fits(device.engines()[engine], &shape)) continue;
        TileOp op;
        op.direction = direction;
        op.shape = shape;
        const Status status = PrepareChecked(device, engine, op).status();
        if (status.code() != Code::kUnsupported) OOC_TRY(status);
      }
    }
  }
  return {};
}

// With a byte less than an engine wants, it computes in another way or refuses; a partial sum is
// workspace too.
Status WorkspaceKeepsToItsLimit(Device& device) {
  const auto engines = static_cast<int>(device.engines().size());
  for (int engine = 0; engine < engines; ++engine) {
    for (const Direction direction : kAllDirections) {
      for (ConvShape shape : FewShapes()) {
        if (!Fits(device.engines()[engine], &shape)) continue;
        TileOp op;
        op.direction = direction;
        op.shape = shape;
        op.accumulates = true;
        const auto roomy = PrepareChecked(device, engine, op);
        if (roomy.status().code() == Code::kUnsupported) continue;
        OOC_TRY(roomy.status());
        if (roomy.value()->workspace_bytes() == 0) continue;
        op.workspace_limit = roomy.value()->workspace_bytes() - 1;
        const Status status = PrepareChecked(device, engine, op).status();
        const bool refused =
            status.code() == Code::kUnsupported || status.code() == Code::kOutOfMemory;
        if (!refused) OOC_TRY(status);
      }
    }
  }
  return {};
}

constexpr Filling kInts = Filling::kIntegers, kReals = Filling::kReals;

constexpr Case kCases[] = {
    {"forward", Whole<Direction::kForward, kInts>},
    {"backward_data", Whole<Direction::kBackwardData, kInts>},
    {"backward_filter", Whole<Direction::kBackwardFilter, kInts>},
    {"backward_bias", Whole<Direction::kBackwardBias, kInts>},
    {"forward_of_reals", Whole<Direction::kForward, kReals>},
    {"backward_data_of_reals", Whole<Direction::kBackwardData, kReals>},
    {"backward_filter_of_reals", Whole<Direction::kBackwardFilter, kReals>},
    {"backward_bias_of_reals", Whole<Direction::kBackwardBias, kReals>},
    {"convolve_f64", OfDType<DType::kFloat64, false>},
    {"convolve_f16", OfDType<DType::kFloat16, false>},
    {"convolve_bf16", OfDType<DType::kBFloat16, false>},
    {"accumulate_f32", OfDType<DType::kFloat32, true>},
    {"accumulate_f64", OfDType<DType::kFloat64, true>},
    {"accumulate_f16", OfDType<DType::kFloat16, true>},
    {"accumulate_bf16", OfDType<DType::kBFloat16, true>},
    {"refusals_have_reasons", RefusalsHaveReasons},
    {"executables_state_their_tiles", ExecutablesStateTheirTiles},
    {"workspace_keeps_to_its_limit", WorkspaceKeepsToItsLimit},
};

}  // namespace

std::span<const Case> EngineCases() { return kCases; }

}  // namespace oocdnn::testing
