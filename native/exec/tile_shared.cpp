// The tile loop's way with tensors that several problems of a call share, see SharedTiles.
#include "exec/tile_loop.hpp"

namespace oocdnn {
namespace {

const TileLayout& SharedOf(const Booking& booking, const Step& step, Operand operand) {
  const SharedTiles& shared = *booking.shared[Index(operand)];
  return booking.candidate.tiling.IsShort(step.index) ? shared.ends : shared.usual;
}

void* SharedAt(const Booking& booking, const Step& step, const Arena& arena, Operand operand) {
  const auto slot = static_cast<size_t>(step.operand[Index(operand)].slot);
  return arena.At(booking.shared[Index(operand)]->slot[slot]);
}

}  // namespace

void TileLoop::ToShared(const Call& call, const Step& step, Transfer* transfer) {
  const TileLayout& layout = SharedOf(call.booking, step, transfer->operand);
  transfer->tile = SharedAt(call.booking, step, call.arena, transfer->operand);
  transfer->layout = &layout;
  for (int d = 1; d < 6; ++d) transfer->box.origin[d] = 0;
  transfer->box.extent = transfer->tile_end = layout.shape;
}

Status TileLoop::Leave(const Call& call, const Step& step) {
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!call.booking.problem.Reads(operand)) continue;
    const auto slot = static_cast<size_t>(step.operand[i].slot);
    const std::optional<TensorUse>& lender = call.booking.lender[i];
    if (lender) {
      const Gates& gates = gates_[lender->node];
      OOC_TRY(device_.Record(gates.idle[Index(lender->operand)][slot].get(), compute_.get()));
    } else if (!call.booking.inner[i]) {
      OOC_TRY(device_.Record(Idle(call, operand, step.operand[i].slot), compute_.get()));
    }
  }
  return {};
}

// The shared tile has the step's samples alone.
Status TileLoop::CopyShared(const Call& call, const Step& step, bool writes) {
  const Booking& booking = call.booking;
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    const OperandStep& mine = step.operand[i];
    if (booking.shared[i] == nullptr || booking.problem.Writes(operand) != writes) continue;
    if (!(writes ? mine.leave : mine.enter)) continue;
    Transfer transfer = TransferOf(call, step, operand);
    const TileLayout& layout = SharedOf(booking, step, operand);
    transfer.view = {
        SharedAt(booking, step, call.arena, operand), layout.dtype, layout.stride, {Tier::kDevice}};
    const int64_t before = transfer.box.origin[0];
    if (Moves(booking.problem, operand, Axis::kN)) {
      for (Dims* dims :
           {&transfer.box.origin, &transfer.box.valid_begin, &transfer.box.valid_end}) {
        (*dims)[0] -= before;
      }
    }
    OOC_TRY(writes ? device_.Drain(compute_.get(), transfer)
                   : device_.Fetch(compute_.get(), transfer));
  }
  return {};
}

}  // namespace oocdnn
