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
  OOC_TRY(ExpectReference(op, *executable.value(), inputs, filling, seen.value(), start)
              .With(what));
  ++*ran;
  return {};
}

// Runs `sweep` on every engine and shape that it takes. Nothing ran: kUnsupported.
Status RunSweep(Device& device, const Sweep& sweep, const std::vector<ConvShape>& shapes) {
  int ran = 0;
  const auto engines = static_cast<int>(device.engines().size());
  for (int engine = 0; engine < engines; ++engine) {
    const EngineInfo& info = device.engines()[engine];
    for (ConvShape shape : shapes) {
      if (!Fits(info, &shape)) continue;
      TileOp op;
      op.direction = sweep.direction;
      op.shape = shape;
      op.dtype = sweep.dtype;
      op.out_dtype = sweep.out_dtype;
      op.accumulates = sweep.accumulates;
      OOC_TRY(RunOne(device, engine, op, sweep.filling, &ran));
    }
  }
  if (ran > 0) return {};
  return Error(Code::kUnsupported, "no engine takes %s of %s into %s%s", Name(sweep.direction),
               Name(sweep.dtype), Name(sweep.out_dtype), sweep.accumulates ? ", adding" : "");
}

template <Direction kDirection>
Status Whole(Device& device) {
  return RunSweep(device, {.direction = kDirection}, Shapes());
}

template <Direction kDirection>
Status WholeReals(Device& device) {
  return RunSweep(device, {.direction = kDirection, .filling = Filling::kReals}, FewShapes());
}

// All directions in one dtype, into that dtype and into its accumulator.
template <DType kDType>
Status OfDType(Device& device) {
  for (const DType out : {kDType, AccumulatorOf(kDType)}) {
    for (const Direction direction : kAllDirections) {
      OOC_TRY(RunSweep(device, {.direction = direction, .dtype = kDType, .out_dtype = out},
                       FewShapes()));
    }
  }
  return {};
}

template <DType kDType>
Status Accumulates(Device& device) {
  for (const Direction direction : kAllDirections) {
    const Sweep sweep{.direction = direction,
                      .dtype = kDType,
                      .out_dtype = AccumulatorOf(kDType),
                      .accumulates = true};
    OOC_TRY(RunSweep(device, sweep, FewShapes()));
  }
  return {};
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
          if (status.code() != Code::kUnsupported) OOC_TRY(status);
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

constexpr Case kCases[] = {
    {"forward", Whole<Direction::kForward>},
    {"backward_data", Whole<Direction::kBackwardData>},
    {"backward_filter", Whole<Direction::kBackwardFilter>},
    {"backward_bias", Whole<Direction::kBackwardBias>},
    {"forward_of_reals", WholeReals<Direction::kForward>},
    {"backward_data_of_reals", WholeReals<Direction::kBackwardData>},
    {"backward_filter_of_reals", WholeReals<Direction::kBackwardFilter>},
    {"backward_bias_of_reals", WholeReals<Direction::kBackwardBias>},
    {"convolve_f64", OfDType<DType::kFloat64>},
    {"convolve_f16", OfDType<DType::kFloat16>},
    {"convolve_bf16", OfDType<DType::kBFloat16>},
    {"accumulate_f32", Accumulates<DType::kFloat32>},
    {"accumulate_f64", Accumulates<DType::kFloat64>},
    {"accumulate_f16", Accumulates<DType::kFloat16>},
    {"accumulate_bf16", Accumulates<DType::kBFloat16>},
    {"refusals_have_reasons", RefusalsHaveReasons},
    {"executables_state_their_tiles", ExecutablesStateTheirTiles},
};

}  // namespace

std::span<const Case> EngineCases() { return kCases; }

}  // namespace oocdnn::testing
