// Search: from a problem and a budget to the few candidates worth preparing, engine by engine. What
// is searched on one engine is in family.cpp, how it is ranked in rank.cpp.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "base/watch.hpp"
#include "model/price/describe.hpp"
#include "model/price/orders.hpp"
#include "model/price/pins.hpp"
#include "model/price/rank.hpp"
#include "model/search/family.hpp"
#include "model/search/taper_search.hpp"

namespace oocdnn {
namespace {

constexpr int kAtLeast = 2;          // candidates of every engine after the first
constexpr double kTaperGain = 1.06;  // no taper makes a plan so many times faster

std::optional<RankedCandidate> Whole(const PlanRequest& request, int engine,
                                     const Profile& profile) {
  if (request.cuts) return std::nullopt;
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

// What was found on one engine.
struct Found {
  int engine = 0;
  Families families;
  std::vector<std::string> refused;
  int64_t considered = 0;
};

void SearchFamilies(const PlanRequest& request, const Profile& profile, const Effort& effort,
                    bool whole, double floor, Found* found) {
  TileSpace space(request, found->engine, profile);
  const auto run = [&](bool cut) {
    FamilySearch family(&space, request, cut, effort);
    std::vector<RankedCandidate> ranked = family.Run();
    found->considered += family.considered();
    return ranked;
  };
  Families& families = found->families;
  families.uncut = run(false);
  if (SummedChannels(request.problem) == Axis::kN || (whole && !request.exhaustive)) return;
  // Partial sums are looked at only where they could be so much faster.
  if (families.Seconds() > floor * kPartialSumsGain) families.cut = run(true);
}

Found SearchEngine(const PlanRequest& request, int engine, const Profile& profile, double floor,
                   const Effort& effort) {
  Found found;
  found.engine = engine;
  const std::optional<RankedCandidate> whole = Whole(request, engine, profile);
  ++found.considered;
  if (!whole) found.refused.push_back(WholeRefusal(request, engine));
  if (!whole || whole->cost.steps > 0) {
    SearchFamilies(request, profile, effort, whole.has_value(), floor, &found);
  }
  if (whole) PutWhole(*whole, profile.shared_engines, &found.families);
  return found;
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
    std::vector<Found> found;
    for (Found& one : SearchAll(engines)) {
      search_.considered += one.considered;
      std::move(one.refused.begin(), one.refused.end(), std::back_inserter(search_.refused));
      if (one.families.Seconds() < kNever) {
        found.push_back(std::move(one));
      } else {
        NoteRefusal(one.engine);
      }
    }
    if (found.empty()) {
      return Error(Code::kOutOfMemory, "%s", least_text_.c_str()).WithDetail(least_);
    }
    Taper(&found);
    const int rest = static_cast<int>(found.size()) - 1;
    int places = std::max(request_.best - rest * kAtLeast, 1);
    while (!found.empty()) {
      const auto next = Preferred(&found);
      std::vector<RankedCandidate> ranked =
          Merge(std::move(next->families), request_.budget, places);
      std::move(ranked.begin(), ranked.end(), std::back_inserter(search_.ranked));
      found.erase(next);
      places = kAtLeast;
    }
    return std::move(search_);
  }

 private:
  // The engine with the least floor first. What is offered of one that cannot lead is looked for
  // briefly.
  std::vector<Found> SearchAll(const std::vector<int>& engines) {
    std::vector<std::pair<double, int>> by_floor;
    by_floor.reserve(engines.size());
    for (const int engine : engines) {
      by_floor.emplace_back(FloorOf(request_, engine, profile_), engine);
    }
    std::sort(by_floor.begin(), by_floor.end());
    std::vector<Found> found;
    for (const auto& [floor, engine] : by_floor) {
      const Effort& effort = MayLead(engine, floor, found) ? kThorough : kBrief;
      found.push_back(SearchEngine(request_, engine, profile_, floor, effort));
    }
    std::sort(found.begin(), found.end(),
              [](const Found& a, const Found& b) { return a.engine < b.engine; });
    return found;
  }

  // No plan on this engine, or on those that have not been looked at yet, takes less than `floor`:
  // so it cannot lead where that is too slow, or where one before it in the order of the request
  // stays preferred even so.
  static bool MayLead(int engine, double floor, const std::vector<Found>& found) {
    double least = floor;
    for (const Found& one : found) least = std::min(least, one.families.Seconds());
    return floor <= kEngineGain * least &&
           std::none_of(found.begin(), found.end(), [&](const Found& one) {
             return one.engine < engine && one.families.Seconds() <= kEngineGain * least;
           });
  }

  // The first, in the order of the request, that none beats clearly.
  static std::vector<Found>::iterator Preferred(std::vector<Found>* found) {
    double least = kNever;
    for (const Found& one : *found) least = std::min(least, one.families.Seconds());
    return std::find_if(found->begin(), found->end(), [&](const Found& one) {
      return one.families.Seconds() <= kEngineGain * least;
    });
  }

  // Short tiles gain some hundredths; engines that are further behind stay there.
  void Taper(std::vector<Found>* found) {
    double least = kNever;
    for (const Found& one : *found) least = std::min(least, one.families.Seconds());
    for (Found& one : *found) {
      if (one.families.Seconds() > kTaperGain * least) continue;
      search_.considered += AddTapered(request_, profile_, &one.families.uncut);
      search_.considered += AddTapered(request_, profile_, &one.families.cut);
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

Candidate DividedCandidate(const PlanRequest& request, int engine, int64_t samples) {
  Candidate divided = WholeCandidate(request, engine);
  AxisArray length = divided.tiling.extent;
  const int64_t batch = length[Index(Axis::kN)];
  length[Index(Axis::kN)] = samples;
  const bool as_data = !request.engines[static_cast<size_t>(engine)].symmetric_padding;
  const Tiling even = MakeTiling(request.problem, length, as_data);
  divided.tiling = Tapered(request.problem, even, {Axis::kN, batch % samples});
  return divided;
}

Candidate LeastCandidate(const PlanRequest& request, int engine, const Profile& profile) {
  Candidate least = WholeCandidate(request, engine);
  TileSpace(request, engine, profile).LeastBytes(&least.tiling);
  return least;
}

Status CheckReproducible(const PlanRequest& request) {
  if (!request.reproducible) return {};
  if (request.problem.sums) {
    return Error(
        Code::kUnsupported,
        "the bits of sums depend on the tiles; where results must be reproducible sum up y "
        "itself");
  }
  if (!request.problem.also.any()) return {};
  return Error(Code::kUnsupported,
               "the bits of dw and db that come along with dx depend on the tiles; where results "
               "must be reproducible ask for each gradient apart");
}

namespace {

// Adds the best plan of each operand that is worth it to be pinned, where it gains.
void AddPinned(const PlanRequest& request, const Profile& profile, PlanSearch* search) {
  const RankedCandidate best = search->ranked.front();
  for (const Pinned& pinned : WorthPinning(request, profile, best)) {
    Candidate wanted;
    wanted.pinned = pinned;
    const PlanRequest then = WithPinned(request, wanted);
    const Result<PlanSearch> found = EngineLoop(then, profile).Run();
    if (!found.ok()) continue;
    search->considered += found->considered;
    Candidate candidate = found->ranked.front().candidate;
    candidate.pinned = pinned;
    const Cost cost = PriceOf(request, candidate, profile);
    if (cost.seconds * kPinGain < best.cost.seconds) search->ranked.push_back({candidate, cost});
  }
}

}  // namespace

Result<PlanSearch> Search(const PlanRequest& request, const Profile& profile) {
  OOC_TRY(CheckReproducible(request));
  const Watch watch;
  OOC_ASSIGN(PlanSearch search, EngineLoop(request, profile).Run());
  AddPinned(request, profile, &search);
  ChoosePins(request, profile, &search.ranked);
  search.seconds = watch.Seconds();
  return search;
}

}  // namespace oocdnn
