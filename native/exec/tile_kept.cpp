// Tile loop: rows that adjacent tiles share, which stay on the device.
#include "exec/tile_loop.hpp"

namespace oocdnn {

Status TileLoop::TakeKept(const Call& call, const Step& step) {
  for (int i = 0; i < kOperands; ++i) {
    const OperandStep& mine = step.operand[i];
    if (!mine.enter || call.booking.in_place[i]) continue;
    if (call.booking.inner[i]) {
      if (mine.kept > 0) OOC_TRY(PassKept(call, step));
    } else if (mine.from_slot >= 0) {
      OOC_TRY(MoveKept(call, step, static_cast<Operand>(i)));
    }
  }
  return {};
}

// Copies rows kept from an adjacent tile. On the stream that computes, so that no copy over the
// wire waits for the move; the slot that they come from is filled again only after it.
Status TileLoop::MoveKept(const Call& call, const Step& step, Operand operand) {
  const int i = Index(operand);
  const OperandStep& mine = step.operand[i];
  TileMove move;
  move.from = SlotOf(call, operand, mine.from_slot);
  move.to = SlotOf(call, operand, mine.slot);
  move.from_begin[mine.roll_axis] = mine.from_row;
  move.extent = mine.box.extent;
  move.extent[mine.roll_axis] = mine.kept;
  move.operand = operand;
  move.layout = &call.booking.Of(step.index).layout[i];
  move.tag = {step.number, operand, nullptr};
  OOC_TRY(device_.Move(compute_.get(), move));
  return device_.Record(Idle(call, operand, mine.from_slot), compute_.get());
}

// Where no tile is before, what would be kept does not exist.
Status TileLoop::PassKept(const Call& call, const Step& step) {
  const OperandStep& x = step.operand[Index(Operand::kX)];
  const TileLayout& kept = call.booking.kept_layout;
  const auto d = static_cast<size_t>(x.roll_axis);
  Transfer transfer = TransferOf(call, step, Operand::kX);
  transfer.view = {call.arena.At(call.booking.kept), kept.dtype, kept.stride, {Tier::kDevice}};
  transfer.box = {{}, x.box.extent, {}, x.box.extent};
  transfer.tile_end[d] = x.kept;
  transfer.box.valid_end[d] = x.from_slot >= 0 ? x.kept : 0;
  OOC_TRY(device_.Fetch(compute_.get(), transfer));
  transfer.box.Set(x.roll_axis, {-x.from_row, x.box.extent[d], 0, x.kept});
  transfer.tile_begin[d] = x.from_row;
  transfer.tile_end[d] = x.from_row + x.kept;
  return device_.Drain(compute_.get(), transfer);
}

}  // namespace oocdnn
