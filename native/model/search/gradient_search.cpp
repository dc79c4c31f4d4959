// Candidates for a chain's gradients: the samples of a tile, and the engine of each node.
#include "model/price/gradient_plan.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "base/checked.hpp"
#include "model/price/cost.hpp"
#include "model/price/cuts.hpp"
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

class Searcher {
 public:
  Searcher(const ProgramRequest& request, const Profile& profile)
      : request_(request), profile_(profile), rates_(request.nodes.size()) {
    for (size_t i = 0; i < rates_.size(); ++i) {
      const PlanRequest& mine = request.nodes[i];
      for (size_t e = 0; e < mine.engines.size(); ++e) {
        rates_[i].emplace_back();
        if (mine.engines[e].name.empty()) continue;
        rates_[i].back().emplace(mine, static_cast<int>(e), profile);
      }
    }
  }

  Result<std::vector<RankedProgram>> Run() {
    if (request_.nodes.front().reproducible) {
      return Error(Code::kUnsupported,
                   "the bits of a chain's gradients depend on the tiles; where results must be "
                   "reproducible compute them link by link");
    }
    for (size_t i = 0; i < rates_.size(); ++i) {
      const Problem& problem = request_.nodes[i].problem;
      if (Fastest(i, 1) < 0) {
        return Error(Code::kUnsupported, "no engine computes %s", ToString(problem).c_str());
      }
    }
    std::vector<RankedProgram> ranked;
    for (const int64_t samples : LengthsOf(request_.samples())) {
      for (const int ring : {2, 1}) {
        if (ring > 1 && samples >= request_.samples()) continue;
        const ProgramCandidate candidate = CandidateWith(samples, ring);
        if (GradientBytes(request_, candidate) > Room()) continue;
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
      if (whole) PutLeast(CandidateOf(1, alone, 1), &ranked);
    }
    return ranked;
  }

 private:
  [[nodiscard]] int64_t Room() const { return request_.budget() - 2 * request_.bounce_bytes(); }

  void PutLeast(const ProgramCandidate& candidate, std::vector<RankedProgram>* ranked) const {
    ranked->push_back({candidate, PriceOf(request_, candidate, profile_), true});
  }

  [[nodiscard]] ProgramCandidate CandidateWith(int64_t samples, int ring) const {
    std::vector<int> engines(rates_.size());
    for (size_t i = 0; i < engines.size(); ++i) engines[i] = Fastest(i, samples);
    return CandidateOf(samples, engines, ring);
  }

  [[nodiscard]] ProgramCandidate CandidateOf(int64_t samples, const std::vector<int>& engines,
                                             int ring) const {
    const Candidate first = DividedCandidate(request_.nodes.front(), engines.front(), samples);
    return {first.tiling, engines, ring, false};
  }

  // Engines are preferred in their order, unless others are clearly faster; -1: there is none.
  [[nodiscard]] int Fastest(size_t problem, int64_t samples) const {
    int chosen = -1;
    double best = kNever;
    for (size_t e = 0; e < rates_[problem].size(); ++e) {
      const std::optional<Rates>& rates = rates_[problem][e];
      if (!rates) continue;
      const PlanRequest& mine = request_.nodes[problem];
      const Tiling tiling = DividedCandidate(mine, static_cast<int>(e), samples).tiling;
      const double seconds =
          rates->RunSeconds(TileShape(mine.problem, tiling), rates->PartialOf(CountsOf(tiling)));
      if (chosen >= 0 && seconds * kEngineGain >= best) continue;
      best = seconds;
      chosen = static_cast<int>(e);
    }
    return chosen;
  }

  const ProgramRequest& request_;
  const Profile& profile_;
  std::vector<std::vector<std::optional<Rates>>> rates_;  // by problem and engine
};

}  // namespace

Result<std::vector<RankedProgram>> SearchGradients(const ProgramRequest& request,
                                                   const Profile& profile) {
  return Searcher(request, profile).Run();
}

}  // namespace oocdnn
