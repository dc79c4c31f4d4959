// Bookings of programs whose tiles are ranges of samples.
#include "exec/program_booking.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "memory/region.hpp"
#include "model/price/gradient_plan.hpp"

namespace oocdnn {
namespace {

// A shared tensor's tile as another problem sees it, whose channels are grouped otherwise. Filters
// have one grouping.
TileLayout SeenBy(const TileLayout& layout, const Problem& problem, Operand operand) {
  TileLayout seen = layout;
  seen.native = nullptr;
  if (operand == Operand::kW) return seen;
  const Dims dims = problem.DimsOf(operand);
  for (size_t d = 1; d < dims.size(); ++d) seen.shape[d] = dims[d];
  seen.stride[1] = Mul(dims[2], layout.stride[2]);
  return seen;
}

class GradientBooker {
 public:
  GradientBooker(Device& device, const ProgramRequest& request, const ProgramCandidate& candidate)
      : device_(device),
        request_(request),
        candidate_(candidate),
        program_(request.program),
        estimate_(GradientBytes(request, candidate)),
        offsets_(device.capabilities().alignment) {}

  Result<ProgramBooking> Book() {
    for (size_t i = 0; i < program_.size(); ++i) {
      const Candidate own = CandidateOf(request_, candidate_, i);
      const auto shape_of = [&](bool is_short) {
        return TileShape(request_.nodes[i].problem, own.tiling, is_short);
      };
      OOC_ASSIGN(Booking node, PrepareNode(device_, request_, i, own, shape_of, estimate_));
      made_.nodes.push_back(std::move(node));
    }
    for (const ProgramTensor& tensor : program_.tensors()) PlaceShared(tensor);
    for (size_t i = 0; i < program_.size(); ++i) PlaceOwn(i);
    region_.Place(device_.capabilities().alignment, &offsets_);
    PlaceBounce(request_.bounce_bytes(), &offsets_, &made_.nodes);
    made_.bytes = offsets_.total();
    return std::move(made_);
  }

 private:
  using Slots = Region::Slots;

  Booking& Of(const TensorUse& use) { return made_.nodes[use.node]; }

  // Whether the use's tiles are all of the tensor's samples, plain and in its type.
  bool IsWhole(const TensorUse& use) {
    const Booking& booking = Of(use);
    const Box box = RegionOf(booking.problem, booking.candidate.tiling, use.operand, TileIndex{});
    const Dims dims = booking.problem.DimsOf(use.operand);
    for (size_t d = 1; d < dims.size(); ++d) {
      const bool all = box.origin[d] == 0 && box.extent[d] == dims[d] && box.valid_begin[d] == 0 &&
                       box.valid_end[d] == dims[d];
      if (!all) return false;
    }
    const auto plain = [&](const PreparedTiles& tiles) {
      const TileLayout& layout = tiles.layout[Index(use.operand)];
      return tiles.parts.empty() || (!layout.opaque && layout.channel_block == 1 &&
                                     layout.dtype == booking.problem.DTypeOf(use.operand));
    };
    return plain(booking.usual) && plain(booking.ends);
  }

  // The tiles of a shared tensor: those of the first use where they do, else dense ones.
  SharedTiles TilesOf(const std::vector<TensorUse>& uses) {
    const auto lies =
        std::find_if(uses.begin(), uses.end(), [&](const TensorUse& use) { return IsWhole(use); });
    const TensorUse& model = lies == uses.end() ? uses.front() : *lies;
    const Booking& booking = Of(model);
    SharedTiles tiles;
    const auto layout_of = [&](const PreparedTiles& prepared, int64_t samples) {
      if (lies != uses.end()) return prepared.layout[Index(model.operand)];
      ConvShape shape = booking.problem.shape;
      shape.n = samples;
      return DenseLayout(booking.problem, shape, model.operand);
    };
    const Tiling& tiling = booking.candidate.tiling;
    tiles.usual = layout_of(booking.usual, tiling.length[Index(Axis::kN)]);
    if (tiling.tapered()) tiles.ends = layout_of(booking.ends, tiling.taper.length);
    return tiles;
  }

  // Whether the use's tiles are such.
  bool LiesThere(const TensorUse& use, const SharedTiles& seen) {
    const Booking& booking = Of(use);
    const int o = Index(use.operand);
    return IsWhole(use) && LieAlike(seen.usual, booking.usual.layout[o]) &&
           (booking.ends.parts.empty() || LieAlike(seen.ends, booking.ends.layout[o]));
  }

  void PlaceShared(const ProgramTensor& tensor) {
    const std::vector<TensorUse>& uses = tensor.uses;
    const TensorUse& first = uses.front();
    const bool outer = tensor.outer;
    const SharedTiles tiles = TilesOf(uses);
    std::vector<Slots*> slots;
    for (const TensorUse& use : uses) {
      Booking& booking = Of(use);
      const int o = Index(use.operand);
      SharedTiles seen = tiles;
      seen.usual = SeenBy(tiles.usual, booking.problem, use.operand);
      seen.ends = SeenBy(tiles.ends, booking.problem, use.operand);
      if (outer && !(use == first)) booking.lender[o] = first;
      if (LiesThere(use, seen)) {
        slots.push_back(&booking.slot[o]);
        continue;
      }
      const auto shared = std::make_shared<SharedTiles>(seen);
      slots.push_back(&shared->slot);
      booking.shared[o] = shared;
      PlaceTurn(use);
    }
    const int64_t bytes = std::max(tiles.usual.bytes, tiles.ends.bytes);
    if (!outer) {
      const auto from = static_cast<int64_t>(first.node);
      region_.Add(bytes, from, static_cast<int64_t>(uses.back().node), slots);
      return;
    }
    for (int slot = 0; slot < DepthOf(first); ++slot) {
      const int64_t offset = offsets_.Book(bytes);
      for (Slots* const mine : slots) mine->push_back(offset);
    }
  }

  int DepthOf(const TensorUse& use) {
    return std::max(Of(use).candidate.depths[Index(use.operand)], 1);
  }

  // A tile of a problem's own, for its turn; of what does not move for the whole run.
  void PlaceTurn(const TensorUse& use) {
    const int64_t bytes = SlotBytes(Of(use), Index(use.operand));
    Slots* const slots = &Of(use).slot[Index(use.operand)];
    slots->assign(static_cast<size_t>(DepthOf(use)), 0);
    if (!Moves(Of(use).problem, use.operand, Axis::kN)) {
      std::fill(slots->begin(), slots->end(), offsets_.Book(bytes));
      return;
    }
    const auto now = static_cast<int64_t>(use.node);
    region_.Add(bytes, now, now, {slots});
  }

  // What the problem shares with nobody.
  void PlaceOwn(size_t number) {
    Booking& booking = made_.nodes[number];
    for (int o = 0; o < kOperands; ++o) {
      const auto operand = static_cast<Operand>(o);
      if (!booking.problem.Uses(operand) || booking.inner[o] || Placed(booking, o)) continue;
      if (booking.problem.Stays(operand)) {
        PlaceTurn({number, operand});
        continue;
      }
      for (int slot = 0; slot < DepthOf({number, operand}); ++slot) {
        booking.slot[o].push_back(offsets_.Book(SlotBytes(booking, o)));
      }
    }
    const auto now = static_cast<int64_t>(number);
    region_.Add(booking.WorkspaceBytes(), now, now, &booking.workspace);
    region_.Add(booking.OwnDyBytes(), now, now, &booking.own_dy);
  }

  static bool Placed(const Booking& booking, int operand) {
    return !booking.slot[operand].empty() || booking.shared[operand] != nullptr;
  }

  Device& device_;
  const ProgramRequest& request_;
  const ProgramCandidate& candidate_;
  const Program& program_;
  ProgramBooking made_;
  const int64_t estimate_;  // of slots
  Offsets offsets_;
  Region region_;
};

}  // namespace

Result<ProgramBooking> BookGradients(Device& device, const ProgramRequest& request,
                                     const ProgramCandidate& candidate) {
  return GradientBooker(device, request, candidate).Book();
}

}  // namespace oocdnn
