// Candidates for a chain's gradients, their bytes and their prices. Each problem is priced as a
// call of its own would be; what is inner costs it nothing.
#include "model/search/gradient_plan.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "geom/lifetimes.hpp"
#include "model/price/cost.hpp"
#include "model/price/cuts.hpp"
#include "model/price/describe.hpp"
#include "model/price/footprint.hpp"
#include "model/price/rank.hpp"

namespace oocdnn {
namespace {

// Numbers of tiles that are tried one by one; of more, each twice the one before it, and those that
// leave no short tile.
constexpr int64_t kEachCount = 16;

// Of the samples of a tile.
std::vector<int64_t> LengthsOf(int64_t batch) {
  std::set<int64_t> lengths{1};
  for (int64_t count = 1; count <= batch; count += count < kEachCount ? 1 : count) {
    lengths.insert(CeilDiv(batch, count));
  }
  for (int64_t length = 1; length * length <= batch; ++length) {
    if (batch % length != 0) continue;
    lengths.insert(length);
    lengths.insert(batch / length);
  }
  return {lengths.rbegin(), lengths.rend()};
}

// Whether the problem's tiles of the operand take turns in a ring: it is the caller's, or shared
// with what fetches it from him.
bool Rings(const GradientChain& chain, size_t problem, Operand operand) {
  if (!Moves(chain.problems[problem], operand, Axis::kN)) return false;
  if (!chain.problems[problem].Has(operand)) return false;
  if (!chain.inner[problem][static_cast<size_t>(Index(operand))]) return true;
  return std::any_of(chain.shared.begin(), chain.shared.end(), [&](const auto& uses) {
    const bool mine = std::count(uses.begin(), uses.end(), TensorUse{problem, operand}) > 0;
    return mine && chain.IsOuter(uses);
  });
}

class Searcher {
 public:
  Searcher(const GradientRequest& request, const Profile& profile)
      : request_(request), profile_(profile), rates_(request.requests.size()) {
    for (size_t i = 0; i < rates_.size(); ++i) {
      const PlanRequest& mine = request.requests[i];
      for (size_t e = 0; e < mine.engines.size(); ++e) {
        rates_[i].emplace_back();
        if (mine.engines[e].name.empty()) continue;
        rates_[i].back().emplace(mine, static_cast<int>(e), profile);
      }
    }
  }

  Result<std::vector<RankedGradients>> Run() {
    if (request_.requests.front().reproducible) {
      return Error(Code::kUnsupported,
                   "the bits of a chain's gradients depend on the tiles; where results must be "
                   "reproducible compute them link by link");
    }
    for (size_t i = 0; i < rates_.size(); ++i) {
      const Problem& problem = request_.requests[i].problem;
      if (Fastest(i, 1) < 0) {
        return Error(Code::kUnsupported, "no engine computes %s", ToString(problem).c_str());
      }
    }
    std::vector<RankedGradients> ranked;
    for (const int64_t samples : LengthsOf(request_.samples())) {
      for (const int ring : {2, 1}) {
        if (ring > 1 && samples >= request_.samples()) continue;
        const GradientCandidate candidate = CandidateWith(samples, ring);
        if (EstimateBytes(request_, candidate) > Room()) continue;
        ranked.push_back({candidate, PriceOf(request_, candidate, profile_), false});
      }
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.cost.seconds < b.cost.seconds; });
    PutLeast(CandidateWith(1, 1), &ranked);
    for (size_t e = 0; e < rates_.front().size(); ++e) {
      const bool whole = std::all_of(rates_.begin(), rates_.end(),
                                     [&](const auto& rates) { return rates[e].has_value(); });
      const std::vector<int> alone(rates_.size(), static_cast<int>(e));
      if (whole) PutLeast({1, alone, 1}, &ranked);
    }
    return ranked;
  }

 private:
  [[nodiscard]] int64_t Room() const { return request_.budget() - 2 * request_.bounce_bytes(); }

  void PutLeast(const GradientCandidate& candidate, std::vector<RankedGradients>* ranked) const {
    ranked->push_back({candidate, PriceOf(request_, candidate, profile_), true});
  }

  [[nodiscard]] GradientCandidate CandidateWith(int64_t samples, int ring) const {
    GradientCandidate candidate{samples, {}, ring};
    for (size_t i = 0; i < rates_.size(); ++i) candidate.engine.push_back(Fastest(i, samples));
    return candidate;
  }

  // Engines are preferred in their order, unless others are clearly faster; -1: there is none.
  [[nodiscard]] int Fastest(size_t problem, int64_t samples) const {
    int chosen = -1;
    double best = kNever;
    for (size_t e = 0; e < rates_[problem].size(); ++e) {
      const std::optional<Rates>& rates = rates_[problem][e];
      if (!rates) continue;
      const PlanRequest& mine = request_.requests[problem];
      const Tiling tiling = DividedCandidate(mine, static_cast<int>(e), samples).tiling;
      const double seconds =
          rates->RunSeconds(TileShape(mine.problem, tiling), rates->PartialOf(CountsOf(tiling)));
      if (chosen >= 0 && seconds * kEngineGain >= best) continue;
      best = seconds;
      chosen = static_cast<int>(e);
    }
    return chosen;
  }

  const GradientRequest& request_;
  const Profile& profile_;
  std::vector<std::vector<std::optional<Rates>>> rates_;  // by problem and engine
};

// The slots of one problem.
class ProblemBytes {
 public:
  ProblemBytes(const GradientRequest& request, const GradientCandidate& candidate, size_t number)
      : problem_(request.requests[number].problem),
        own_(CandidateOf(request, candidate, number)),
        footprint_(problem_, request.requests[number].engines[static_cast<size_t>(own_.engine)]),
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

Candidate CandidateOf(const GradientRequest& request, const GradientCandidate& candidate,
                      size_t problem) {
  Candidate made =
      DividedCandidate(request.requests[problem], candidate.engine[problem], candidate.samples);
  for (int o = 0; o < kOperands; ++o) {
    if (Rings(request.chain, problem, static_cast<Operand>(o))) made.depths[o] = candidate.ring;
  }
  return made;
}

int64_t EstimateBytes(const GradientRequest& request, const GradientCandidate& candidate) {
  const GradientChain& chain = request.chain;
  int64_t own = 0;
  std::vector<Lifetime> lifetimes;
  std::vector<ProblemBytes> bytes;
  for (size_t i = 0; i < chain.size(); ++i) {
    bytes.emplace_back(request, candidate, i);
    if (!bytes.back().Indexable()) return kSizeMax;
    own = Add(own, bytes.back().Own(chain.inner[i]));
    const auto now = static_cast<int64_t>(i);
    if (chain.problems[i].Stays(Operand::kY)) {
      lifetimes.push_back({bytes.back().Of(Operand::kY), now, now, 0});
    }
  }
  for (const std::vector<TensorUse>& uses : chain.shared) {
    if (chain.IsOuter(uses)) continue;
    const TensorUse& first = uses.front();
    lifetimes.push_back({bytes[first.problem].Of(first.operand),
                         static_cast<int64_t>(first.problem),
                         static_cast<int64_t>(uses.back().problem), 0});
  }
  return Add(own, Pack(&lifetimes, 1));
}

Cost PriceOf(const GradientRequest& request, const GradientCandidate& candidate,
             const Profile& profile) {
  Cost sum;
  for (size_t i = 0; i < request.chain.size(); ++i) {
    const Cost one = PriceOf(request.requests[i], CandidateOf(request, candidate, i), profile);
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
  sum.device_bytes = EstimateBytes(request, candidate);
  return sum;
}

Result<std::vector<RankedGradients>> SearchGradients(const GradientRequest& request,
                                                     const Profile& profile) {
  return Searcher(request, profile).Run();
}

std::string Describe(const GradientRequest& request, const GradientCandidate& candidate) {
  std::string text = TileText(CandidateOf(request, candidate, 0).tiling);
  for (size_t i = 0; i < request.chain.size(); ++i) {
    const auto engine = static_cast<size_t>(candidate.engine[i]);
    text += (i == 0 ? "; " : ", ") + request.requests[i].engines[engine].name;
  }
  return text + "; " + BytesText(EstimateBytes(request, candidate)) + " in all";
}

}  // namespace oocdnn
