// The bytes and the prices of a candidate for a chain's gradients. Each node is priced as a call of
// its own would be; what is inner costs it nothing.
#include "model/price/gradient_plan.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "geom/lifetimes.hpp"
#include "model/price/cost.hpp"
#include "model/price/cuts.hpp"
#include "model/price/footprint.hpp"

namespace oocdnn {
namespace {

// Whether the node's tiles of the operand take turns in a ring: it is the caller's, or shared with
// the node that fetches it.
bool Rings(const Program& program, size_t node, Operand operand) {
  return Moves(program[node], operand, Axis::kN) && program[node].Has(operand) &&
         !program.IsInner(node, operand);
}

// The slots of one problem.
class ProblemBytes {
 public:
  ProblemBytes(const ProgramRequest& request, const ProgramCandidate& candidate, size_t number)
      : problem_(request.nodes[number].problem),
        own_(CandidateBySamples(request, candidate, number)),
        footprint_(problem_, request.nodes[number].engines[static_cast<size_t>(own_.engine)]),
        shape_(TileShape(problem_, own_.tiling)),
        partial_(CutsReduction(problem_, own_.tiling)) {}

  [[nodiscard]] int64_t Of(Operand operand) const {
    return footprint_.SlotBytes(shape_, operand, partial_);
  }
  // Of the caller's.
  [[nodiscard]] int64_t Own(const std::array<bool, kOperands>& inner) const {
    int64_t bytes = 0;
    for (int o = 0; o < kOperands; ++o) {
      if (!problem_.Has(static_cast<Operand>(o)) || inner[static_cast<size_t>(o)]) continue;
      bytes = Add(bytes, Mul(std::max(own_.depths[o], 1), Of(static_cast<Operand>(o))));
    }
    return bytes;
  }
  [[nodiscard]] bool Indexable() const { return footprint_.Indexable(shape_); }

 private:
  const Problem& problem_;
  const Candidate own_;
  const Footprint footprint_;
  const ConvShape shape_;
  const bool partial_;
};

}  // namespace

Candidate CandidateBySamples(const ProgramRequest& request, const ProgramCandidate& candidate,
                             size_t node) {
  Candidate made =
      DividedCandidate(request.nodes[node], candidate.engine[node], candidate.samples());
  for (int o = 0; o < kOperands; ++o) {
    if (Rings(request.program, node, static_cast<Operand>(o))) made.depths[o] = candidate.ring;
  }
  return made;
}

int64_t GradientBytes(const ProgramRequest& request, const ProgramCandidate& candidate) {
  const Program& program = request.program;
  int64_t own = 0;
  std::vector<Lifetime> lifetimes;
  std::vector<ProblemBytes> bytes;
  for (size_t i = 0; i < program.size(); ++i) {
    bytes.emplace_back(request, candidate, i);
    if (!bytes.back().Indexable()) return kSizeMax;
    own = Add(own, bytes.back().Own(program.PassedTo(i)));
    const auto now = static_cast<int64_t>(i);
    if (program[i].Stays(Operand::kY)) {
      lifetimes.push_back({bytes.back().Of(Operand::kY), now, now, 0});
    }
  }
  for (const ProgramTensor& tensor : program.tensors()) {
    if (tensor.outer) continue;
    const TensorUse& first = tensor.uses.front();
    lifetimes.push_back({bytes[first.node].Of(first.operand), static_cast<int64_t>(first.node),
                         static_cast<int64_t>(tensor.uses.back().node), 0});
  }
  return Add(own, Pack(&lifetimes, 1));
}

Cost PriceOf(const ProgramRequest& request, const ProgramCandidate& candidate,
             const Profile& profile) {
  Cost sum;
  for (size_t i = 0; i < request.program.size(); ++i) {
    const Cost one = PriceOf(request.nodes[i], CandidateBySamples(request, candidate, i), profile);
    sum.fetch_seconds += one.fetch_seconds;
    sum.compute_seconds += one.compute_seconds;
    sum.drain_seconds += one.drain_seconds;
    sum.bytes_in = Add(sum.bytes_in, one.bytes_in);
    sum.bytes_out = Add(sum.bytes_out, one.bytes_out);
    sum.steps = one.steps;
  }
  const double all = sum.fetch_seconds + sum.compute_seconds + sum.drain_seconds;
  const double busiest = std::max({sum.fetch_seconds, sum.compute_seconds, sum.drain_seconds});
  const bool overlaps = candidate.ring > 1 && !profile.shared_engines;
  sum.seconds =
      overlaps ? busiest + (all - busiest) / static_cast<double>(std::max<int64_t>(sum.steps, 1))
               : all;
  sum.device_bytes = GradientBytes(request, candidate);
  return sum;
}

}  // namespace oocdnn
