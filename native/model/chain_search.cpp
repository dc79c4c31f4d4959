// Candidates of a chain: so many samples in a tile, with short tiles at the ends or without, and
// where a sample is large, pieces of it; each link on the engine that is the fastest for its tile.
#include <algorithm>
#include <set>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "model/chain_plan.hpp"
#include "model/cost.hpp"
#include "model/rank.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kMostTiles = 64;        // of a batch that fewer, larger tiles serve
constexpr int64_t kFewSamples = 8;        // in which case pieces of samples fill the pipeline
constexpr int64_t kMostPieces = 1 << 12;  // of an axis
constexpr size_t kMostChains = 16;

class ChainSearch {
 public:
  ChainSearch(const ChainRequest& request, const Profile& profile)
      : request_(request), profile_(profile), last_(request.chain.back()) {}

  Result<std::vector<RankedChain>> Run() {
    OOC_TRY(CheckEngines());
    for (const int64_t samples : Lengths(last_.shape.n)) Consider({samples, 0, 0, 0, 0, 0, 0});
    if (found_.empty() || last_.shape.n < kFewSamples) ConsiderPieces();
    if (found_.empty()) {
      return Error(Code::kOutOfMemory, "a chain of %zu links needs %s at least, the budget is %s",
                   request_.chain.size(), BytesText(least_).c_str(),
                   BytesText(request_.budget()).c_str())
          .WithDetail(least_);
    }
    std::stable_sort(found_.begin(), found_.end(),
                     [](const auto& a, const auto& b) { return a.cost.seconds < b.cost.seconds; });
    PutSmaller();
    if (found_.size() > kMostChains) found_.resize(kMostChains);
    return std::move(found_);
  }

 private:
  [[nodiscard]] Status CheckEngines() const {
    for (size_t i = 0; i < request_.links.size(); ++i) {
      const auto& engines = request_.links[i].engines;
      const bool any = std::any_of(engines.begin(), engines.end(),
                                   [](const EngineInfo& engine) { return !engine.name.empty(); });
      if (!any) return Error(Code::kUnsupported, "no engine computes link %zu of a chain", i);
    }
    return {};
  }

  // Lengths that cut an axis into 1, 2, 3, ... pieces, and the shortest; longest first.
  static std::vector<int64_t> Lengths(int64_t extent) {
    std::set<int64_t> lengths;
    for (int64_t count = 1; count <= std::min(extent, kMostTiles); ++count) {
      lengths.insert(CeilDiv(extent, count));
    }
    for (int64_t length = 1; length <= std::min(extent, kFewSamples); ++length) {
      lengths.insert(length);
    }
    return {lengths.rbegin(), lengths.rend()};
  }

  // An extent, its half, its quarter, ...
  static std::vector<int64_t> Halves(int64_t extent) {
    std::vector<int64_t> lengths;
    for (int64_t count = 1; count < 2 * extent && count <= kMostPieces; count *= 2) {
      lengths.push_back(CeilDiv(extent, count));
    }
    return lengths;
  }

  void ConsiderPieces() {
    const AxisArray extent = ExtentsOf(last_);
    for (const int64_t d : Halves(extent[Index(Axis::kD)])) {
      for (const int64_t h : Halves(extent[Index(Axis::kH)])) {
        for (const int64_t w : Halves(extent[Index(Axis::kW)])) Consider({1, 0, 0, 0, d, h, w});
      }
    }
  }

  // A length of 0: that of the axis.
  void Consider(AxisArray length) {
    const AxisArray extent = ExtentsOf(last_);
    for (int a = 0; a < kAxes; ++a) {
      if (length[a] == 0) length[a] = extent[a];
    }
    ChainCandidate candidate;
    candidate.tiling = MakeTiling(last_, length, false);
    candidate.engine = Fastest(candidate.tiling);
    const int64_t samples = candidate.tiling.length[Index(Axis::kN)];
    for (const int64_t ends : {int64_t{0}, samples / 2, samples / 4, extent[0] % samples}) {
      ChainCandidate one = candidate;
      one.tiling = Tapered(last_, candidate.tiling, {Axis::kN, ends});
      if (ends != 0 && !one.tiling.tapered()) continue;
      one.ring = one.tiling.Tiles() > 1 ? 2 : 1;
      Offer(one);
      if (one.ring == 1) continue;
      one.ring = 1;
      if (found_.empty()) Offer(one);  // less memory, and no overlap
    }
  }

  void Offer(const ChainCandidate& candidate) {
    const int64_t bytes = Add(EstimateBytes(request_, candidate), 2 * request_.bounce_bytes());
    least_ = std::min(least_, bytes);
    if (bytes > request_.budget()) return;
    found_.push_back({candidate, PriceOf(request_, candidate, profile_)});
  }

  // Engines are preferred in their order, unless others are clearly faster.
  std::vector<int> Fastest(const Tiling& tiling) const {
    std::vector<int> chosen;
    for (const PlanRequest& link : request_.links) {
      const size_t i = chosen.size();
      double best = kNever;
      chosen.push_back(-1);
      for (size_t e = 0; e < link.engines.size(); ++e) {
        if (link.engines[e].name.empty()) continue;
        std::vector<bool> pads(request_.links.size(), true);
        pads[i] = link.engines[e].symmetric_padding;
        const ConvShape tile = ChainTiles(request_.chain, tiling, pads).ShapeOf(i, false);
        const double seconds = Rates(link, static_cast<int>(e), profile_).RunSeconds(tile);
        if (chosen[i] >= 0 && seconds * kEngineGain >= best) continue;
        best = seconds;
        chosen[i] = static_cast<int>(e);
      }
    }
    return chosen;
  }

  // Where exact bytes turn out larger than estimated, one of them still fits.
  void PutSmaller() {
    std::vector<RankedChain> smaller;
    for (int64_t most = found_.front().cost.device_bytes / 2; smaller.size() < kMostChains / 2;
         most /= 2) {
      const auto next = std::find_if(found_.begin(), found_.end(), [&](const RankedChain& one) {
        return one.cost.device_bytes <= most;
      });
      if (next == found_.end()) break;
      smaller.push_back(*next);
    }
    const size_t places = kMostChains - smaller.size();
    if (found_.size() > places) found_.resize(places);
    found_.insert(found_.end(), smaller.begin(), smaller.end());
  }

  const ChainRequest& request_;
  const Profile& profile_;
  const Problem& last_;
  std::vector<RankedChain> found_;
  int64_t least_ = kSizeMax;
};

}  // namespace

Result<std::vector<RankedChain>> SearchChain(const ChainRequest& request, const Profile& profile) {
  return ChainSearch(request, profile).Run();
}

}  // namespace oocdnn
