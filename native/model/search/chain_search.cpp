// Candidates of a chain: so many samples in a tile, with short tiles at the ends or without, and
// where a sample is large, pieces of it; each link on the engine that is the fastest for its tile.
#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "model/price/chain_cost.hpp"
#include "model/price/chain_plan.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kMostTiles = 64;        // of a batch that fewer, larger tiles serve
constexpr int64_t kFewSamples = 8;        // in which case pieces of samples fill the pipeline
constexpr int64_t kMostPieces = 1 << 12;  // of an axis
constexpr int kMostWidths = 3;            // of pieces that fit and differ in nothing else
constexpr size_t kMostPriced = 24, kMostChains = 16;

// As it is priced where the batch alone is cut: what may be used in place has no slots.
ProgramRequest PricedInPlace(ProgramRequest request) {
  for (PlanRequest& link : request.nodes) {
    for (int o = 0; o < kOperands; ++o) {
      if (link.in_place[o]) link.tiers[o] = Tier::kTile;
    }
  }
  return request;
}

class ChainSearch {
 public:
  ChainSearch(const ProgramRequest& request, const Profile& profile)
      : request_(request),
        divided_(PricedInPlace(request)),
        last_(request.program.back()),
        extent_(ExtentsOf(last_)),
        halos_(std::make_shared<ChainHalos>(request.program)),
        samples_(divided_, halos_, profile),
        pieces_(request_, halos_, profile) {}

  Result<std::vector<RankedProgram>> Run() {
    OOC_TRY(CheckEngines());
    for (const int64_t samples : Lengths(last_.shape.n)) {
      Consider({samples, 0, 0, 0, 0, 0, 0});
    }
    // Samples that barely fit may turn out not to.
    const bool tight = found_.empty() || least_ > request_.budget() / 2;
    const bool pieces = tight || last_.shape.n < kFewSamples;
    if (pieces && !last_.Writes(Operand::kSaved)) ConsiderPieces();
    if (found_.empty()) {
      return Error(Code::kOutOfMemory, "a chain of %zu links needs %s at least, the budget is %s",
                   request_.program.size(), BytesText(least_).c_str(),
                   BytesText(request_.budget()).c_str())
          .WithDetail(least_);
    }
    return Priced(Promising());
  }

 private:
  struct Found {
    ProgramCandidate candidate;
    double guess = 0.0;  // of its seconds
    int64_t bytes = 0;
  };

  [[nodiscard]] Status CheckEngines() const {
    for (size_t i = 0; i < request_.nodes.size(); ++i) {
      const auto& engines = request_.nodes[i].engines;
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

  // Of pieces as long and as high the widest that fit, and the smallest of all.
  void ConsiderPieces() {
    const std::vector<int64_t> lengths = Halves(extent_[Index(Axis::kD)]);
    const std::vector<int64_t> heights = Halves(extent_[Index(Axis::kH)]);
    const std::vector<int64_t> widths = Halves(extent_[Index(Axis::kW)]);
    Consider({1, 0, 0, 0, lengths.back(), heights.back(), widths.back()});
    for (const int64_t d : lengths) {
      for (const int64_t h : heights) {
        if (Late()) return;
        int fitting = 0;
        for (size_t w = 0; w < widths.size() && fitting < kMostWidths; ++w) {
          if (Consider({1, 0, 0, 0, d, h, widths[w]})) ++fitting;
        }
      }
    }
  }

  [[nodiscard]] bool Late() const {
    return !found_.empty() && std::chrono::steady_clock::now() > request_.nodes.front().deadline;
  }

  // By what a candidate of such tiles costs.
  [[nodiscard]] const ChainPrices& PricesOf(const Tiling& tiling) const {
    const bool divided = tiling.Tiles() == tiling.Count(Axis::kN);
    return divided ? samples_ : pieces_;
  }

  // A length of 0: that of the axis. Whether any such tiles fit.
  bool Consider(AxisArray length) {
    for (int a = 0; a < kAxes; ++a) {
      if (length[a] == 0) length[a] = extent_[a];
    }
    const Tiling tiling = MakeTiling(last_, length, false);
    const bool sweeps = request_.sweeps && halos_->Sweeps(tiling);
    const bool fits = Consider(tiling, false);
    return (sweeps && Consider(tiling, true)) || fits;
  }

  bool Consider(const Tiling& tiling, bool sweeps) {
    ProgramCandidate candidate;
    candidate.tiling = tiling;
    candidate.sweeps = sweeps;
    candidate.engine = PricesOf(tiling).Fastest(tiling, sweeps);
    const int64_t samples = candidate.tiling.length[Index(Axis::kN)];
    bool fits = false;
    for (const int64_t ends :
         std::set{int64_t{0}, samples / 2, samples / 4, extent_[0] % samples}) {
      ProgramCandidate one = candidate;
      one.tiling = Tapered(last_, candidate.tiling, {Axis::kN, ends});
      if (ends != 0 && !one.tiling.tapered()) continue;
      one.ring = one.tiling.Tiles() > 1 ? 2 : 1;
      fits = Offer(one) || fits;
      if (one.ring == 1) continue;
      one.ring = 1;
      if (found_.empty()) fits = Offer(one);  // less memory, and no overlap
    }
    return fits;
  }

  bool Offer(const ProgramCandidate& candidate) {
    const ChainPrices& prices = PricesOf(candidate.tiling);
    const ChainTiles tiles = prices.TilesOf(candidate);
    const int64_t bytes = Add(ChainBytes(request_, candidate, tiles), 2 * request_.bounce_bytes());
    least_ = std::min(least_, bytes);
    if (bytes > request_.budget()) return false;
    const bool known = std::any_of(found_.begin(), found_.end(), [&](const Found& other) {
      return other.bytes == bytes && other.candidate == candidate;
    });
    if (!known) found_.push_back({candidate, prices.Guess(candidate, tiles), bytes});
    return true;
  }

  // The first by their guesses, and where exact bytes turn out larger than estimated, some that
  // still fit: of half the bytes, of a quarter, ...
  std::vector<Found> Promising() {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Found& a, const Found& b) { return a.guess < b.guess; });
    std::vector<Found> chosen;
    for (const Found& one : found_) {
      const bool small = chosen.empty() || one.bytes <= smallest_ / 2;
      if (chosen.size() >= kMostPriced && !small) continue;
      if (chosen.size() >= kMostPriced + kMostChains / 2) break;
      smallest_ = std::min(smallest_, one.bytes);
      chosen.push_back(one);
    }
    return chosen;
  }

  Result<std::vector<RankedProgram>> Priced(const std::vector<Found>& chosen) {
    std::vector<RankedProgram> ranked;
    for (const Found& one : chosen) {
      if (!ranked.empty() && Late()) break;
      ranked.push_back({one.candidate, PricesOf(one.candidate.tiling).Price(one.candidate)});
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.cost.seconds < b.cost.seconds; });
    Shorten(&ranked);
    return ranked;
  }

  // To so many, of which the last are smaller and smaller.
  static void Shorten(std::vector<RankedProgram>* ranked) {
    if (ranked->size() <= kMostChains) return;
    std::vector<RankedProgram> kept, smaller;
    int64_t smallest = kSizeMax;
    for (const RankedProgram& one : *ranked) {
      const int64_t bytes = one.cost.device_bytes;
      const bool first = kept.size() < kMostChains / 2;
      const bool small = !first && bytes <= smallest / 2 && smaller.size() < kMostChains / 2;
      if (first || small) smallest = std::min(smallest, bytes);
      (small ? smaller : kept).push_back(one);
    }
    kept.resize(std::min(kept.size(), kMostChains - smaller.size()));
    kept.insert(kept.end(), smaller.begin(), smaller.end());
    *ranked = std::move(kept);
  }

  const ProgramRequest& request_;
  const ProgramRequest divided_;
  const Problem& last_;
  const AxisArray extent_;
  const std::shared_ptr<ChainHalos> halos_;
  const ChainPrices samples_, pieces_;  // of tiles that are whole samples, and of others
  std::vector<Found> found_;
  int64_t smallest_ = kSizeMax;  // of those that are priced
  int64_t least_ = kSizeMax;     // of all that were looked at
};

}  // namespace

Result<std::vector<RankedProgram>> SearchChain(const ProgramRequest& request,
                                               const Profile& profile) {
  return ChainSearch(request, profile).Run();
}

}  // namespace oocdnn
