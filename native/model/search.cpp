// Search: from a problem and a budget to the few candidates worth preparing, engine by engine in
// order of preference. What is searched on one engine is in family.cpp, how it is ranked in
// rank.cpp.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "model/describe.hpp"
#include "model/family.hpp"
#include "model/orders.hpp"
#include "model/rank.hpp"

namespace oocdnn {
namespace {

constexpr int kAtLeast = 2;  // candidates of every engine after the first

// One tile, one slot each: what a problem that fits altogether runs as.
std::optional<RankedCandidate> Whole(const PlanRequest& request, int engine,
                                     const Profile& profile) {
  const Problem& problem = request.problem;
  const EngineInfo& info = request.engines[static_cast<size_t>(engine)];
  Candidate whole{WholeTiling(problem, !info.symmetric_padding), DefaultOrder(problem), {}, engine};
  for (int i = 0; i < kOperands; ++i) {
    whole.depths[i] = problem.Uses(static_cast<Operand>(i)) ? 1 : 0;
  }
  const bool fits = EstimateBytes(request, whole) <= request.budget &&
                    Footprint(problem, info).Indexable(TileShape(problem, whole.tiling));
  if (!fits && whole.tiling.Tiles() > 0) return std::nullopt;
  return RankedCandidate{whole, PriceOf(request, whole, profile)};
}

// Why one tile of everything is not among the candidates.
std::string WholeRefusal(const PlanRequest& request, int engine) {
  Candidate whole;
  whole.tiling = WholeTiling(request.problem, false);
  whole.engine = engine;
  return Format("%s in one tile needs %s, the budget is %s",
                request.engines[static_cast<size_t>(engine)].name.c_str(),
                BytesText(EstimateBytes(request, whole)).c_str(),
                BytesText(request.budget).c_str());
}

std::vector<RankedCandidate> SearchEngine(const PlanRequest& request, int engine, int quota,
                                          const Profile& profile, PlanSearch* search) {
  Families families;
  families.whole = Whole(request, engine, profile);
  ++search->considered;
  if (families.whole && families.whole->cost.steps == 0) return {*families.whole};
  if (!families.whole) search->refused.push_back(WholeRefusal(request, engine));
  TileSpace space(request, engine, profile);
  FamilySearch uncut(&space, request, profile, false);
  families.uncut = uncut.Run();
  search->considered += uncut.considered();

  // Partial sums are looked at only where they could be so much faster.
  const Axis summed = SummedChannels(request.problem);
  const double floor = FloorOf(request, engine, profile) * kPartialSumsGain;
  const bool useless = !families.uncut.empty() && families.uncut.front().cost.seconds <= floor;
  if (summed != Axis::kN && !families.whole && !useless) {
    FamilySearch cut(&space, request, profile, true);
    families.cut = cut.Run();
    search->considered += cut.considered();
  }
  return Merge(std::move(families), request.budget, quota);
}

// Sentence of an engine that no tiling fits.
std::string Refusal(const PlanRequest& request, int engine, int64_t least, const Tiling& tiling) {
  return Format("%s needs at least %lld bytes (tile: %s), the budget is %lld",
                request.engines[static_cast<size_t>(engine)].name.c_str(),
                static_cast<long long>(least), TileText(tiling).c_str(),
                static_cast<long long>(request.budget));
}

// Runs the engines in order of preference; engines of one kind share one search.
class EngineLoop {
 public:
  EngineLoop(const PlanRequest& request, const Profile& profile)
      : request_(request), profile_(profile) {}

  Result<PlanSearch> Run() {
    const std::vector<int> engines = Admitted();
    if (engines.empty()) return NoEngine();
    const int rest = static_cast<int>(engines.size()) - 1;
    for (const int engine : engines) {
      const bool first = engine == engines.front();
      const int quota = first ? std::max(request_.best - rest * kAtLeast, 1) : kAtLeast;
      std::vector<RankedCandidate> ranked = RankedOf(engine, quota);
      if (ranked.empty()) NoteRefusal(engine);
      std::move(ranked.begin(), ranked.end(), std::back_inserter(search_.ranked));
    }
    if (search_.ranked.empty()) {
      return Error(Code::kOutOfMemory, "%s", least_text_.c_str()).WithDetail(least_);
    }
    return std::move(search_);
  }

 private:
  struct Shared {
    bool symmetric, blocked;
    std::vector<RankedCandidate> ranked;
  };

  std::vector<int> Admitted() {
    std::vector<int> engines;
    for (size_t i = 0; i < request_.engines.size(); ++i) {
      const EngineInfo& engine = request_.engines[i];
      if (engine.name.empty()) continue;
      if (request_.reproducible && !engine.properties.invariant) {
        search_.refused.push_back(engine.name +
                                  ": its bits depend on the tile, and reproducible "
                                  "results were asked for");
        continue;
      }
      engines.push_back(static_cast<int>(i));
    }
    return engines;
  }

  [[nodiscard]] Status NoEngine() const {
    std::string why = "no engine serves the request";
    for (const std::string& reason : search_.refused) why += "; " + reason;
    return {Code::kUnsupported, why};
  }

  std::vector<RankedCandidate> RankedOf(int engine, int quota) {
    const EngineInfo& info = request_.engines[static_cast<size_t>(engine)];
    const bool blocked = Footprint(request_.problem, info).blocked();
    for (const Shared& shared : shared_) {
      if (shared.symmetric == info.symmetric_padding && shared.blocked == blocked) {
        return Reprice(shared.ranked, engine);
      }
    }
    shared_.push_back({info.symmetric_padding, blocked,
                       SearchEngine(request_, engine, quota, profile_, &search_)});
    return shared_.back().ranked;
  }

  // Another engine with the same tiles and other rates: the order stays, the prices change.
  [[nodiscard]] std::vector<RankedCandidate> Reprice(std::vector<RankedCandidate> ranked,
                                                     int engine) const {
    if (ranked.size() > kAtLeast) ranked.resize(kAtLeast);
    for (RankedCandidate& entry : ranked) {
      entry.candidate.engine = engine;
      entry.cost = PriceOf(request_, entry.candidate, profile_);
    }
    return ranked;
  }

  void NoteRefusal(int engine) {
    Tiling tiling;
    const int64_t least = TileSpace(request_, engine, profile_).LeastBytes(&tiling);
    const std::string text = Refusal(request_, engine, least, tiling);
    search_.refused.push_back(text);
    if (least >= least_) return;
    least_ = least;
    least_text_ = text;
  }

  const PlanRequest& request_;
  const Profile& profile_;
  PlanSearch search_;
  std::vector<Shared> shared_;
  int64_t least_ = kSizeMax;
  std::string least_text_ = "no tiling is small enough for the engine's 32-bit sizes";
};

}  // namespace

Result<PlanSearch> Search(const PlanRequest& request, const Profile& profile) {
  const auto begin = std::chrono::steady_clock::now();
  OOC_ASSIGN(PlanSearch search, EngineLoop(request, profile).Run());
  search.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return search;
}

}  // namespace oocdnn
