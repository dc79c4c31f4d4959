// Search: from a problem and a budget to the few candidates worth preparing, engine by engine. What
// is searched on one engine is in family.cpp, how it is ranked in rank.cpp.
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
#include "model/taper_search.hpp"

namespace oocdnn {
namespace {

constexpr int kAtLeast = 2;          // candidates of every engine after the first
constexpr double kTaperGain = 1.06;  // no taper makes a plan so many times faster

std::optional<RankedCandidate> Whole(const PlanRequest& request, int engine,
                                     const Profile& profile) {
  const Problem& problem = request.problem;
  const EngineInfo& info = request.engines[static_cast<size_t>(engine)];
  const Candidate whole = WholeCandidate(request, engine);
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

// Where copies and computing take turns, nothing is gained by cutting what fits; else one tile is a
// candidate like any other.
void PutWhole(const RankedCandidate& whole, bool shared_engines, Families* families) {
  if (shared_engines || whole.cost.steps == 0) {
    families->whole = whole;
  } else {
    families->uncut.push_back(whole);
    Rank(&families->uncut);
  }
}

Families SearchEngine(const PlanRequest& request, int engine, const Profile& profile,
                      PlanSearch* search) {
  Families families;
  const std::optional<RankedCandidate> whole = Whole(request, engine, profile);
  ++search->considered;
  if (!whole) search->refused.push_back(WholeRefusal(request, engine));
  if (!whole || whole->cost.steps > 0) {
    TileSpace space(request, engine, profile);
    FamilySearch uncut(&space, request, profile, false);
    families.uncut = uncut.Run();
    search->considered += uncut.considered();

    // Partial sums are looked at only where they could be so much faster.
    const Axis summed = SummedChannels(request.problem);
    const double floor = FloorOf(request, engine, profile) * kPartialSumsGain;
    const bool useless = !families.uncut.empty() && families.uncut.front().cost.seconds <= floor;
    if (summed != Axis::kN && !whole && !useless) {
      FamilySearch cut(&space, request, profile, true);
      families.cut = cut.Run();
      search->considered += cut.considered();
    }
  }
  if (whole) PutWhole(*whole, profile.shared_engines, &families);
  return families;
}

// Sentence of an engine that no tiling fits.
std::string Refusal(const PlanRequest& request, int engine, int64_t least, const Tiling& tiling) {
  return Format("%s needs at least %lld bytes (tile: %s), the budget is %lld",
                request.engines[static_cast<size_t>(engine)].name.c_str(),
                static_cast<long long>(least), TileText(tiling).c_str(),
                static_cast<long long>(request.budget));
}

class EngineLoop {
 public:
  EngineLoop(const PlanRequest& request, const Profile& profile)
      : request_(request), profile_(profile) {}

  Result<PlanSearch> Run() {
    const std::vector<int> engines = Admitted();
    if (engines.empty()) return NoEngine();
    std::vector<Families> found;
    for (const int engine : engines) {
      found.push_back(SearchEngine(request_, engine, profile_, &search_));
      if (found.back().Seconds() < kNever) continue;
      NoteRefusal(engine);
      found.pop_back();
    }
    if (found.empty()) {
      return Error(Code::kOutOfMemory, "%s", least_text_.c_str()).WithDetail(least_);
    }
    Taper(&found);
    const int rest = static_cast<int>(found.size()) - 1;
    int places = std::max(request_.best - rest * kAtLeast, 1);
    while (!found.empty()) {
      const auto next = Preferred(&found);
      std::vector<RankedCandidate> ranked = Merge(std::move(*next), request_.budget, places);
      std::move(ranked.begin(), ranked.end(), std::back_inserter(search_.ranked));
      found.erase(next);
      places = kAtLeast;
    }
    return std::move(search_);
  }

 private:
  // The first, in the order of the request, that none beats clearly.
  static std::vector<Families>::iterator Preferred(std::vector<Families>* found) {
    double least = kNever;
    for (const Families& families : *found) least = std::min(least, families.Seconds());
    return std::find_if(found->begin(), found->end(), [&](const Families& families) {
      return families.Seconds() <= kEngineGain * least;
    });
  }

  // Short tiles gain some hundredths; engines that are further behind stay there.
  void Taper(std::vector<Families>* found) {
    double least = kNever;
    for (const Families& families : *found) least = std::min(least, families.Seconds());
    for (Families& families : *found) {
      if (families.Seconds() > kTaperGain * least) continue;
      search_.considered += AddTapered(request_, profile_, &families.uncut);
      search_.considered += AddTapered(request_, profile_, &families.cut);
    }
  }

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
  int64_t least_ = kSizeMax;
  std::string least_text_ = "no tiling is small enough for the engine's 32-bit sizes";
};

}  // namespace

Candidate WholeCandidate(const PlanRequest& request, int engine) {
  const Problem& problem = request.problem;
  const bool as_data = !request.engines[static_cast<size_t>(engine)].symmetric_padding;
  Candidate whole{WholeTiling(problem, as_data), DefaultOrder(problem), {}, engine};
  for (int i = 0; i < kOperands; ++i) {
    whole.depths[i] = problem.Uses(static_cast<Operand>(i)) ? 1 : 0;
  }
  return whole;
}

Candidate LeastCandidate(const PlanRequest& request, int engine, const Profile& profile) {
  Candidate least = WholeCandidate(request, engine);
  TileSpace(request, engine, profile).LeastBytes(&least.tiling);
  return least;
}

Result<PlanSearch> Search(const PlanRequest& request, const Profile& profile) {
  const auto begin = std::chrono::steady_clock::now();
  OOC_ASSIGN(PlanSearch search, EngineLoop(request, profile).Run());
  search.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return search;
}

}  // namespace oocdnn
