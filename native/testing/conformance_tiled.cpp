#include "testing/conformance_tiled.hpp"

#include "base/checked.hpp"
#include "model/price/orders.hpp"

namespace oocdnn::testing {
namespace {

// The arrays and tiles of one tiled run, all on one stream.
struct TiledRun {
  Rig rig;
  const Problem& problem;
  const Tiling& tiling;
  Executable& executable;
  Stream stream = nullptr;
  std::array<Array, kOperands> array{};
  RunArgs args;

  Status Prepare(const Operands& inputs) {
    OOC_ASSIGN(stream, rig.MainStream());
    for (const Operand operand : InputsOf(problem.direction)) {
      OOC_TRY(Prepare(operand, inputs[Index(operand)]));
    }
    const Operand output = problem.output();
    OOC_TRY(Prepare(output, Tensor(problem.DimsOf(output))));
    if (executable.workspace_bytes() == 0) return {};
    OOC_ASSIGN(args.workspace, rig.NewBuffer(executable.workspace_bytes()));
    return {};
  }

  Status Prepare(Operand operand, const Tensor& tensor) {
    OOC_ASSIGN(Array made, rig.NewArray(tensor.dims, problem.dtype));
    made.Write(tensor);
    array[Index(operand)] = made;
    OOC_ASSIGN(args.tile[Index(operand)], rig.NewBuffer(executable.layout(operand).bytes));
    return {};
  }

  [[nodiscard]] Transfer TransferOf(Operand operand, const TileIndex& index) const {
    Transfer transfer = WholeTransfer(array[Index(operand)], operand, executable.layout(operand),
                                      args.tile[Index(operand)]);
    transfer.box = RegionOf(problem, tiling, operand, index);
    transfer.tile_end = transfer.box.extent;
    return transfer;
  }

  Status RunTile(const TileIndex& index) {
    Device& device = rig.device();
    args.accumulate = false;
    for (int i = 0; i < kAxes; ++i) {
      const bool reduction = IsReduction(problem, static_cast<Axis>(i));
      args.accumulate = args.accumulate || (reduction && index[i] > 0);
    }
    if (problem.direction == Direction::kBackwardFilter) {
      const Box dy = RegionOf(problem, tiling, Operand::kY, index);
      for (int s = 0; s < 3; ++s) args.origin[s] = dy.origin[3 + s];
    }
    for (const Operand operand : InputsOf(problem.direction)) {
      OOC_TRY(device.Fetch(stream, TransferOf(operand, index)));
    }
    OOC_TRY(device.Run(stream, executable, args));
    return device.Drain(stream, TransferOf(problem.output(), index));
  }
};

// Calls visit(index) for every tile until it fails.
template <class Visit>
Status ForEachTile(const Tiling& tiling, Visit visit) {
  TileIndex index{};
  while (true) {
    OOC_TRY(visit(index));
    int axis = kAxes - 1;
    while (axis >= 0 && ++index[axis] == tiling.Count(static_cast<Axis>(axis))) index[axis--] = 0;
    if (axis < 0) return {};
  }
}

}  // namespace

Problem MakeProblem(Direction direction, const ConvShape& shape, DType dtype) {
  Problem problem;
  problem.direction = direction;
  problem.rank = 3;
  problem.shape = shape;
  problem.dtype = dtype;
  for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY, Operand::kBias}) {
    problem.stride[Index(operand)] = DenseStrides(problem.DimsOf(operand));
  }
  return problem;
}

TileOp TileOpOf(const Problem& problem, const Tiling& tiling) {
  TileOp op;
  op.direction = problem.direction;
  op.shape = TileShape(problem, tiling);
  op.dtype = op.out_dtype = problem.dtype;
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    op.accumulates = op.accumulates || (IsReduction(problem, axis) && tiling.Count(axis) > 1);
  }
  if (op.accumulates) op.out_dtype = AccumulatorOf(op.dtype);
  return op;
}

Operands MakeInputs(const Problem& problem, Filling filling, Random& random) {
  TileOp op;
  op.direction = problem.direction;
  op.shape = problem.shape;
  op.dtype = problem.dtype;
  return MakeInputs(op, filling, random);
}

Tiling RandomTiling(const Problem& problem, bool padding_as_data, Random& random) {
  AxisArray length = ExtentsOf(problem);
  for (int i = 0; i < kAxes; ++i) {
    if (IsReduction(problem, static_cast<Axis>(i)) || random.Between(0, 2) == 0) continue;
    length[i] = random.Between(CeilDiv(length[i], 3), length[i]);
  }
  return MakeTiling(problem, length, padding_as_data);
}

Tiling RandomSumTiling(const Problem& problem, bool padding_as_data, Random& random) {
  const AxisArray extent = ExtentsOf(problem);
  std::vector<Axis> axes;
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (IsReduction(problem, axis) && SumUnit(problem, axis) < extent[i]) axes.push_back(axis);
  }
  if (axes.empty()) return WholeTiling(problem, padding_as_data);
  const Axis cut =
      axes[static_cast<size_t>(random.Between(0, static_cast<int64_t>(axes.size()) - 1))];
  AxisArray length = extent;
  for (const Axis axis : axes) {
    if (axis < cut) length[Index(axis)] = 1;
  }
  const int64_t unit = SumUnit(problem, cut);
  length[Index(cut)] = unit * random.Between(1, CeilDiv(extent[Index(cut)], unit) - 1);
  return MakeTiling(problem, length, padding_as_data);
}

Result<Tensor> RunTiled(Device& device, Executable& executable, const Problem& problem,
                        const Tiling& tiling, const Operands& inputs) {
  TiledRun run{Rig(device), problem, tiling, executable, nullptr, {}, {}};
  OOC_TRY(run.Prepare(inputs));
  OOC_TRY(ForEachTile(tiling, [&](const TileIndex& index) { return run.RunTile(index); }));
  OOC_TRY(device.SynchronizeStream(run.stream));
  return run.array[Index(problem.output())].Read();
}

std::string Text(const Tiling& tiling) {
  std::string text = "tiles of";
  for (int i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (tiling.Count(axis) <= 1) continue;
    text += Format(" %s %lld", Name(axis), static_cast<long long>(tiling.length[i]));
  }
  return text;
}

}  // namespace oocdnn::testing
