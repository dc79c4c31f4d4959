// What a candidate of a chain makes of each link, and the bytes that it takes.
#include "model/price/chain_plan.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "geom/chain_lifetimes.hpp"
#include "model/price/footprint.hpp"

namespace oocdnn {
namespace {

const EngineInfo& EngineOf(const ProgramRequest& request, const ProgramCandidate& candidate,
                           size_t link) {
  return request.nodes[link].engines[static_cast<size_t>(candidate.engine[link])];
}

// Of the rows of x that a sweep keeps, in the problem's type.
int64_t KeptBytes(const Problem& problem, const ConvShape& kept) {
  return Mul(SizeOf(problem.dtype), Product(kept.DimsOf(Operand::kX, problem.direction)));
}

// The slots of one link of a chain, as a booking shares them.
class LinkBytes {
 public:
  LinkBytes(const ProgramRequest& request, const ProgramCandidate& candidate,
            const ChainTiles& tiles, size_t link)
      : chain_(request.program),
        link_(link),
        problem_(request.program[link]),
        own_(request.nodes[link]),
        in_place_(tiles.DividesBatch()),
        ring_(candidate.ring),
        residual_(ResidualOf(request, candidate, tiles, link)),
        footprint_(problem_, EngineOf(request, candidate, link),
                   Fuses(request.nodes[link], candidate.engine[link])),
        shape_(tiles.ShapeOf(link, false)),
        kept_(tiles.KeptOf(link, false)) {}

  [[nodiscard]] int64_t Of(Operand operand) const {
    return footprint_.SlotBytes(shape_, operand, false);
  }
  [[nodiscard]] Residual residual() const { return residual_; }
  // Of rows of an inner x, beside its tile.
  [[nodiscard]] int64_t Kept() const {
    return link_ > 0 && kept_ ? KeptBytes(problem_, *kept_) : 0;
  }
  // Of what the caller has.
  [[nodiscard]] int64_t Own() const {
    int64_t bytes = 0;
    for (int o = 0; o < kOperands; ++o) {
      const auto operand = static_cast<Operand>(o);
      const bool inner = operand == Operand::kResidual ? residual_ != Residual::kFetched
                                                       : chain_.IsInner(link_, operand);
      const bool lies = own_.tiers[o] == Tier::kTile || (in_place_ && own_.in_place[o]);
      if (!problem_.Has(operand) || inner || lies) continue;
      bytes = Add(bytes, Mul(Moves(problem_, operand, Axis::kN) ? ring_ : 1, Of(operand)));
    }
    return bytes;
  }
  [[nodiscard]] bool Indexable() const { return footprint_.Indexable(shape_); }

 private:
  const Program& chain_;
  size_t link_;
  const Problem& problem_;
  const PlanRequest& own_;
  bool in_place_;
  int ring_;
  Residual residual_;
  Footprint footprint_;
  ConvShape shape_;
  std::optional<ConvShape> kept_;
};

}  // namespace

ChainTiles TilesOf(const ProgramRequest& request, const ProgramCandidate& candidate) {
  return TilesOf(request, candidate, std::make_shared<ChainHalos>(request.program));
}

ChainTiles TilesOf(const ProgramRequest& request, const ProgramCandidate& candidate,
                   std::shared_ptr<ChainHalos> halos) {
  std::vector<bool> pads(request.program.size());
  for (size_t i = 0; i < pads.size(); ++i) {
    pads[i] = EngineOf(request, candidate, i).symmetric_padding;
  }
  return {std::move(halos), candidate.tiling, std::move(pads), candidate.sweeps};
}

bool Relays(const PlanRequest& next, int engine) {
  const EngineInfo& info = next.engines[static_cast<size_t>(engine)];
  const bool narrow = AccumulatorOf(next.problem.dtype) != next.problem.dtype;
  return info.blocks_channels || (narrow && !info.short_tiles);
}

bool WritesZ(const ProgramRequest& request, const ProgramCandidate& candidate,
             const ChainTiles& tiles, size_t link) {
  return Fuses(request.nodes[link], candidate.engine[link]) &&
         request.program[link].pool.Copies() && tiles.ZMatchesY(link);
}

Residual ResidualOf(const ProgramRequest& request, const ProgramCandidate& candidate,
                    const ChainTiles& tiles, size_t link) {
  const Problem& problem = request.program[link];
  const int64_t source = oocdnn::ResidualOf(request.program, link);
  if (!problem.epilogue.residual) return Residual::kNone;
  if (source == kFromOutside) return Residual::kFetched;
  const auto reader = static_cast<size_t>(source + 1);  // of the tile as its x
  const EngineInfo& engine = EngineOf(request, candidate, reader);
  if (source == kFromX) {
    const bool in_place =
        tiles.DividesBatch() && request.nodes.front().in_place[Index(Operand::kX)];
    if (in_place || engine.blocks_channels) return Residual::kFetched;
  }
  const Dims tile = tiles.ShapeOf(reader, false).DimsOf(Operand::kX, Direction::kForward);
  const Dims sum = tiles.ShapeOf(link, false).DimsOf(Operand::kY, Direction::kForward);
  const bool alike = tile == sum && AccumulatorOf(problem.dtype) == problem.dtype &&
                     candidate.engine[reader] == candidate.engine[link];
  return alike && !engine.blocks_channels ? Residual::kShared : Residual::kCopied;
}

Candidate CandidateByRows(const ProgramRequest& request, const ProgramCandidate& candidate,
                          size_t link) {
  const Problem& problem = request.program[link];
  AxisArray length = ExtentsOf(problem);
  length[Index(Axis::kN)] = candidate.tiling.length[Index(Axis::kN)];
  Candidate made;
  made.engine = candidate.engine[link];
  made.tiling = MakeTiling(problem, length, !EngineOf(request, candidate, link).symmetric_padding);
  made.tiling = Tapered(problem, made.tiling, candidate.tiling.taper);
  made.order = DefaultOrder(problem);
  for (int o = 0; o < kOperands; ++o) {
    const bool moves = Moves(problem, static_cast<Operand>(o), Axis::kN);
    made.depths[o] = problem.Uses(static_cast<Operand>(o)) ? (moves ? candidate.ring : 1) : 0;
  }
  return made;
}

int64_t ChainBytes(const ProgramRequest& request, const ProgramCandidate& candidate,
                   const ChainTiles& tiles) {
  int64_t own = 0;
  std::vector<Lifetime> lifetimes;
  std::vector<ForwardedTile> forwarded(request.program.size());
  std::vector<bool> shares(request.program.size());
  for (size_t i = 0; i < request.program.size(); ++i) {
    const LinkBytes bytes(request, candidate, tiles, i);
    if (!bytes.Indexable()) return kSizeMax;
    own = Add(own, Add(bytes.Own(), bytes.Kept()));
    const auto add = [&](Operand operand) {
      lifetimes.push_back({bytes.Of(operand), ConvolvedAt(i), FinishedAt(i), 0});
    };
    const bool stays = request.program[i].Stays(Operand::kY);
    if (stays && !WritesZ(request, candidate, tiles, i)) add(Operand::kY);
    shares[i] = bytes.residual() == Residual::kShared;
    if (bytes.residual() == Residual::kCopied) add(Operand::kResidual);
    if (i == 0) continue;
    forwarded[i].x = bytes.Of(Operand::kX);
    forwarded[i].convolved = WritesZ(request, candidate, tiles, i - 1);
    if (!Relays(request.nodes[i], candidate.engine[i])) continue;
    forwarded[i].z = LinkBytes(request, candidate, tiles, i - 1).Of(Operand::kZ);
  }
  const ForwardedLifetimes between = LifetimesOf(request.program, forwarded, shares);
  lifetimes.insert(lifetimes.end(), between.x.begin(), between.x.end());
  lifetimes.insert(lifetimes.end(), between.z.begin(), between.z.end());
  return Add(own, Pack(&lifetimes, 1));
}

}  // namespace oocdnn
