// Bookings of programs whose tiles are ranges of samples and rows.
#include "exec/program_booking.hpp"

#include "base/checked.hpp"
#include "geom/chain_lifetimes.hpp"
#include "memory/region.hpp"
#include "model/price/chain_plan.hpp"

namespace oocdnn {
namespace {

// Whether a finishing pass can write such a tile: it writes plain ones, in the caller's type.
bool CanBeMade(const TileLayout& layout, DType dtype) {
  return !layout.opaque && layout.channel_block == 1 && layout.dtype == dtype;
}

// The z of a link that is the x of the next one, whose channels are grouped otherwise, but for the
// bytes `before` it.
TileLayout AsMade(const TileLayout& x, const TileLayout& z, int64_t before) {
  TileLayout layout = x;
  layout.shape = z.shape;
  layout.stride[1] = Mul(z.shape[2], x.stride[2]);
  layout.native = nullptr;
  layout.bytes -= before;
  return layout;
}

bool IsOpaque(const Booking& link, Operand operand) {
  const int o = Index(operand);
  return link.usual.layout[o].opaque || link.ends.layout[o].opaque;
}

class ChainBooker {
 public:
  ChainBooker(Device& device, const ProgramRequest& request, const ProgramCandidate& candidate)
      : device_(device),
        request_(request),
        candidate_(candidate),
        made_{{}, TilesOf(request, candidate), candidate.ring, 0},
        tiles_(*made_.tiles),
        estimate_(ChainBytes(request, candidate, tiles_)),
        offsets_(device.capabilities().alignment) {}

  Result<ProgramBooking> Book() {
    for (size_t i = 0; i < request_.program.size(); ++i) {
      const auto shape_of = [&](bool is_short) { return tiles_.ShapeOf(i, is_short); };
      const Candidate link = CandidateOf(request_, candidate_, i);
      OOC_ASSIGN(Booking node, PrepareNode(device_, request_, i, link, shape_of, estimate_));
      made_.nodes.push_back(std::move(node));
    }
    OOC_TRY(Keep());
    Join();
    SourceResiduals();
    Place();
    return std::move(made_);
  }

 private:
  // What tiles keep of inner tensors lies as these do.
  Status Keep() {
    for (size_t i = 1; i < made_.nodes.size(); ++i) {
      const std::optional<ConvShape> kept = tiles_.KeptOf(i, false);
      if (!kept) continue;
      Booking& link = made_.nodes[i];
      if (IsOpaque(link, Operand::kX)) {
        return Error(Code::kUnsupported, "link %zu keeps its tiles of x to itself", i)
            .WithDetail(kSweeps);
      }
      Problem problem = link.problem;
      const TileLayout& x = link.usual.layout[Index(Operand::kX)];
      if (x.channel_block == 1) problem.stride[Index(Operand::kX)] = x.stride;
      link.kept_layout = DenseLayout(problem, *kept, Operand::kX);
    }
    return {};
  }

  // The bytes of a tile of x before those that the link before it writes.
  [[nodiscard]] int64_t KeptBefore(size_t link, const PreparedTiles& tiles) const {
    const TileLayout& kept = made_.nodes[link].kept_layout;
    if (kept.bytes == 0 || tiles.parts.empty()) return 0;
    const TileLayout& x = tiles.layout[Index(Operand::kX)];
    const size_t d = 3 + static_cast<size_t>(tiles_.sweep());
    return Mul(Mul(kept.shape[d], x.stride[d]), SizeOf(x.dtype));
  }

  // Whether a link's short tiles have as much there as the usual ones.
  [[nodiscard]] bool KeepsAlike(size_t link) const {
    const Booking& mine = made_.nodes[link];
    return mine.ends.parts.empty() || KeptBefore(link, mine.ends) == KeptBefore(link, mine.usual);
  }

  // Where rows are kept z lies behind them, which an engine must be able to address.
  [[nodiscard]] bool WritesZ(size_t link) const {
    const int64_t before = KeptBefore(link + 1, made_.nodes[link + 1].usual);
    return oocdnn::WritesZ(request_, candidate_, tiles_, link) &&
           before % device_.capabilities().tile_alignment == 0;
  }

  // z is what the engine writes.
  static void TakeY(Booking* link) {
    for (PreparedTiles* tiles : {&link->usual, &link->ends}) {
      if (tiles->parts.empty()) continue;
      TileLayout& z = tiles->layout[Index(Operand::kZ)];
      z = tiles->layout[Index(Operand::kY)];
      z.native = nullptr;
    }
  }

  // What each link writes is what the next one reads, if it can be written so.
  void Join() {
    for (size_t i = 0; i + 1 < made_.nodes.size(); ++i) {
      Booking &one = made_.nodes[i], &next = made_.nodes[i + 1];
      one.writes_z = WritesZ(i);
      if (one.writes_z) TakeY(&one);
      const auto can = [&](const PreparedTiles& from, const PreparedTiles& to) {
        if (to.parts.empty()) return true;
        const TileLayout &x = to.layout[Index(Operand::kX)], &z = from.layout[Index(Operand::kZ)];
        const int64_t before = KeptBefore(i + 1, to);
        return one.writes_z ? LieAlike(AsMade(x, z, before), z) : CanBeMade(x, one.problem.dtype);
      };
      const bool all = can(one.usual, next.usual) && can(one.ends, next.ends);
      one.relays = !all || !KeepsAlike(i + 1);
      if (one.relays || one.writes_z) continue;
      for (const auto& [from, to] : {std::pair{&next.usual, &one.usual}, {&next.ends, &one.ends}}) {
        if (from->parts.empty()) continue;
        TileLayout& z = to->layout[Index(Operand::kZ)];
        z = AsMade(from->layout[Index(Operand::kX)], z, KeptBefore(i + 1, *from));
      }
    }
  }

  // Whether a link's operand lies in the caller's memory as its tiles do.
  [[nodiscard]] bool InPlaceOf(size_t link, Operand operand) const {
    return tiles_.DividesBatch() && request_.nodes[link].in_place[Index(operand)] &&
           UsedInPlace(made_.nodes[link], operand, device_.capabilities().tile_alignment);
  }

  // From tiles that other links have, if a copy can read them.
  void SourceResiduals() {
    const auto plain = [](const PreparedTiles& tiles) {
      const TileLayout& x = tiles.layout[Index(Operand::kX)];
      return tiles.parts.empty() || (!x.opaque && x.channel_block == 1);
    };
    const Booking& first = made_.nodes.front();
    const bool x = !InPlaceOf(0, Operand::kX) && plain(first.usual) && plain(first.ends);
    for (size_t i = 0; i < made_.nodes.size(); ++i) {
      const int64_t source = ResidualOf(request_.program, i);
      if (source == kFromOutside || (source == kFromX && !x)) continue;
      Booking& link = made_.nodes[i];
      link.residual = source;
      link.inner[Index(Operand::kResidual)] = true;
      link.copies = !Shares(link);
    }
  }

  // Whether the sum and the source of its residual lie alike. Then they are of the same rows too,
  // as the one has all of the other's.
  [[nodiscard]] bool Shares(const Booking& link) const {
    const bool x = link.residual == kFromX;
    const Booking& source = made_.nodes[x ? 0 : static_cast<size_t>(link.residual)];
    const int from = Index(x ? Operand::kX : Operand::kZ), to = Index(Operand::kResidual);
    return LieAlike(source.usual.layout[from], link.usual.layout[to]) &&
           (link.ends.parts.empty() || LieAlike(source.ends.layout[from], link.ends.layout[to]));
  }

  [[nodiscard]] bool HasSum(const Booking& link) const {
    return link.problem.Stays(Operand::kY) && !link.writes_z;
  }

  // What a link has while it computes.
  void AddTurn(size_t number) {
    Booking& link = made_.nodes[number];
    const int64_t from = ConvolvedAt(number), until = FinishedAt(number);
    const auto add = [&](Operand operand) {
      region_.Add(SlotBytes(link, Index(operand)), from, until, {&link.slot[Index(operand)]});
    };
    if (HasSum(link)) add(Operand::kY);
    if (link.copies) {
      link.slot[Index(Operand::kResidual)].assign(static_cast<size_t>(made_.ring), 0);
      add(Operand::kResidual);
    }
    region_.Add(link.WorkspaceBytes(), from, from, &link.workspace);
  }

  // What links forward to each other.
  void AddForwarded() {
    std::vector<ForwardedTile> forwarded(made_.nodes.size());
    std::vector<bool> shares(forwarded.size());
    for (size_t i = 0; i < forwarded.size(); ++i) {
      const Booking& link = made_.nodes[i];
      shares[i] = link.inner[Index(Operand::kResidual)] && !link.copies;
      if (i == 0) continue;
      const Booking& before = made_.nodes[i - 1];
      forwarded[i].x = SlotBytes(link, Index(Operand::kX));
      if (before.relays) forwarded[i].z = SlotBytes(before, Index(Operand::kZ));
      forwarded[i].convolved = before.writes_z;
    }
    const ForwardedLifetimes lifetimes = LifetimesOf(request_.program, forwarded, shares);
    const auto add = [&](const Lifetime& lifetime, size_t number, Operand operand) {
      region_.Add(lifetime.bytes, lifetime.from, lifetime.until,
                  {&made_.nodes[number].slot[Index(operand)]});
    };
    for (size_t i = 1; i < forwarded.size(); ++i) {
      add(lifetimes.x[i], i, Operand::kX);
      if (made_.nodes[i - 1].relays) add(lifetimes.z[i], i - 1, Operand::kZ);
    }
  }

  // Tiles that lie in others, which have their places.
  void PlaceInOthers() {
    for (size_t i = 0; i + 1 < made_.nodes.size(); ++i) {
      Booking &one = made_.nodes[i], &next = made_.nodes[i + 1];
      const int64_t x = next.slot[Index(Operand::kX)].front();
      if (!one.relays) one.slot[Index(Operand::kZ)] = {x + KeptBefore(i + 1, next.usual)};
      if (one.writes_z) one.slot[Index(Operand::kY)] = one.slot[Index(Operand::kZ)];
    }
    for (Booking& link : made_.nodes) {
      if (!link.inner[Index(Operand::kResidual)] || link.copies) continue;
      const bool x = link.residual == kFromX;
      const Booking& source = made_.nodes[x ? 0 : static_cast<size_t>(link.residual)];
      link.slot[Index(Operand::kResidual)] = source.slot[Index(x ? Operand::kX : Operand::kZ)];
    }
  }

  void Place() {
    for (size_t i = 0; i < made_.nodes.size(); ++i) AddTurn(i);
    AddForwarded();
    region_.Place(device_.capabilities().alignment, &offsets_);
    PlaceBounce(request_.bounce_bytes(), &offsets_, &made_.nodes);
    for (Booking& link : made_.nodes) {
      if (link.kept_layout.bytes > 0) link.kept = offsets_.Book(link.kept_layout.bytes);
      PlaceOwn(&link);
    }
    PlaceInOthers();
    made_.bytes = offsets_.total();
  }

  // What the caller has of a link.
  void PlaceOwn(Booking* link) {
    const auto number = static_cast<size_t>(link - made_.nodes.data());
    for (int o = 0; o < kOperands; ++o) {
      const auto operand = static_cast<Operand>(o);
      if (!link->problem.Has(operand) || link->inner[o]) continue;
      link->in_place[o] = InPlaceOf(number, operand);
      if (link->in_place[o]) continue;
      const bool rings = Moves(link->problem, operand, Axis::kN);
      for (int slot = 0; slot < (rings ? made_.ring : 1); ++slot) {
        link->slot[o].push_back(offsets_.Book(SlotBytes(*link, o)));
      }
    }
  }

  Device& device_;
  const ProgramRequest& request_;
  const ProgramCandidate& candidate_;
  ProgramBooking made_;
  const ChainTiles& tiles_;
  const int64_t estimate_;  // of slots
  Offsets offsets_;
  Region region_;
};

}  // namespace

Result<ProgramBooking> BookChain(Device& device, const ProgramRequest& request,
                                 const ProgramCandidate& candidate) {
  return ChainBooker(device, request, candidate).Book();
}

}  // namespace oocdnn
