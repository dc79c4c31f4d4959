#include "testing/pipeline.hpp"

namespace oocdnn::testing {
namespace {

constexpr int kSlots = 2;

struct Slot {
  void *x = nullptr, *y = nullptr;
  Event fetched = nullptr, run = nullptr, drained = nullptr;
};

struct Pipeline {
  Device& device;
  Omit omit;
  TileOp op;
  std::unique_ptr<Executable> executable;  // outlives the rig, which waits for what runs it
  Rig rig;
  Operands inputs;
  Array x, y;
  void *w = nullptr, *workspace = nullptr;
  Slot slots[kSlots];
  Stream fetch = nullptr, compute = nullptr, drain = nullptr;

  Status Prepare();
  Status PrepareSlot(Slot& slot);
  Status Wait(Stream stream, Event event, Omit which) const {
    return omit == which ? Status() : device.Wait(stream, event);
  }
  [[nodiscard]] Transfer TransferOf(Operand operand, const Array& array, void* tile, int step,
                                    Span* span) const;
  Status RunStep(int step, Span* span);
  Status ExpectResult() const;
};

Status Pipeline::PrepareSlot(Slot& slot) {
  OOC_ASSIGN(slot.x, rig.NewBuffer(executable->layout(Operand::kX).bytes));
  OOC_ASSIGN(slot.y, rig.NewBuffer(executable->layout(Operand::kY).bytes));
  for (Event* event : {&slot.fetched, &slot.run, &slot.drained}) {
    OOC_ASSIGN(*event, rig.NewEvent());
  }
  return {};
}

Status Pipeline::Prepare() {
  op.shape = MakeShape(1, 1, 6, 4, {1, 12, 14}, {1, 3, 3});
  OOC_ASSIGN(executable, device.Prepare(0, op));
  Random random(31);
  inputs = MakeInputs(op, Filling::kIntegers, random);
  Dims xs = op.shape.DimsOf(Operand::kX, op.direction);
  Dims ys = op.shape.DimsOf(Operand::kY, op.direction);
  xs[0] = ys[0] = kPipelineSteps;
  inputs[Index(Operand::kX)] = Integers(xs, random);
  OOC_ASSIGN(x, rig.NewArray(xs, DType::kFloat32));
  OOC_ASSIGN(y, rig.NewArray(ys, DType::kFloat32));
  x.Write(inputs[Index(Operand::kX)]);
  OOC_ASSIGN(fetch, rig.NewStream("fetch"));
  OOC_ASSIGN(compute, rig.NewStream("compute"));
  OOC_ASSIGN(drain, rig.NewStream("drain"));
  OOC_ASSIGN(w,
             rig.NewTile(inputs[Index(Operand::kW)], Operand::kW, executable->layout(Operand::kW)));
  if (executable->workspace_bytes() > 0) {
    OOC_ASSIGN(workspace, rig.NewBuffer(executable->workspace_bytes()));
  }
  for (Slot& slot : slots) OOC_TRY(PrepareSlot(slot));
  return {};
}

Transfer Pipeline::TransferOf(Operand operand, const Array& array, void* tile, int step,
                              Span* span) const {
  Transfer transfer = WholeTransfer(array, operand, executable->layout(operand), tile);
  transfer.box.origin[0] = transfer.box.valid_begin[0] = step;
  transfer.box.extent[0] = transfer.tile_end[0] = 1;
  transfer.box.valid_end[0] = step + 1;
  transfer.tag = {step, operand, span};
  return transfer;
}

Status Pipeline::RunStep(int step, Span* span) {
  Slot& slot = slots[step % kSlots];
  OOC_TRY(Wait(fetch, slot.run, Omit::kFetchWaitsForRun));
  OOC_TRY(device.Fetch(fetch, TransferOf(Operand::kX, x, slot.x, step, span)));
  OOC_TRY(device.Record(slot.fetched, fetch));
  OOC_TRY(Wait(compute, slot.fetched, Omit::kRunWaitsForFetch));
  OOC_TRY(Wait(compute, slot.drained, Omit::kRunWaitsForDrain));
  RunArgs args;
  args.tile[Index(Operand::kX)] = slot.x;
  args.tile[Index(Operand::kW)] = w;
  args.tile[Index(Operand::kY)] = slot.y;
  args.workspace = workspace;
  args.tag = {step, Operand::kY, nullptr};
  OOC_TRY(device.Run(compute, *executable, args));
  OOC_TRY(device.Record(slot.run, compute));
  OOC_TRY(Wait(drain, slot.run, Omit::kDrainWaitsForRun));
  OOC_TRY(device.Drain(drain, TransferOf(Operand::kY, y, slot.y, step, nullptr)));
  return device.Record(slot.drained, drain);
}

Status Pipeline::ExpectResult() const {
  ConvShape whole = op.shape;
  whole.n = kPipelineSteps;
  const std::string difference = FirstDifference(y.Read(), Convolve(op.direction, whole, inputs));
  OOC_EXPECT(difference.empty(), "the pipeline's result: %s", difference.c_str());
  return {};
}

}  // namespace

Status RunPipeline(Device& device, Omit omit, Span* spans) {
  Pipeline pipeline{device, omit,    {},      nullptr, Rig(device), {},      {},
                    {},     nullptr, nullptr, {},      nullptr,     nullptr, nullptr};
  OOC_TRY(pipeline.Prepare());
  for (int step = 0; step < kPipelineSteps; ++step) {
    OOC_TRY(pipeline.RunStep(step, spans == nullptr ? nullptr : &spans[step]));
  }
  for (const Stream stream : {pipeline.fetch, pipeline.compute, pipeline.drain}) {
    OOC_TRY(device.SynchronizeStream(stream));
  }
  return omit == Omit::kNothing ? pipeline.ExpectResult() : Status();
}

}  // namespace oocdnn::testing
