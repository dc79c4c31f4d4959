// Plans of chains: depth first where all links fit together, else in sections.
#include "planner/program_planner.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/log.hpp"
#include "model/price/chain_floor.hpp"
#include "model/price/chain_plan.hpp"
#include "model/price/cost.hpp"
#include "model/price/footprint.hpp"
#include "model/price/rank.hpp"

namespace oocdnn {
namespace {

// What the least plan of a link may take, as long as its floor: it is tried where nothing else is.
constexpr double kLastResort = 100.0;
// A section that could not be faster by this is not searched for; so no choice is further from the
// best than that.
constexpr double kGain = 1.02;

using Ranked = std::vector<RankedProgram>;

// What is wanting for a section may do for a shorter one; anything else ends the search.
Status Fatal(const Status& status) {
  const bool wanting = status.code() == Code::kOutOfMemory || status.code() == Code::kUnsupported;
  return wanting ? Status() : status;
}

// Whether anything could be used in place.
bool HopesForPlace(const ProgramRequest& request) {
  return std::any_of(request.nodes.begin(), request.nodes.end(),
                     [](const PlanRequest& link) { return link.in_place != InPlace{}; });
}

// What sections of a chain leave for each other passes through host memory.
class ChainPlanner {
 public:
  ChainPlanner(Device& device, const Program& chain, const std::vector<PlanRequest>& links,
               const Profile& profile, int64_t* prepared)
      : device_(device),
        chain_(chain),
        links_(links),
        profile_(profile),
        prepared_(*prepared),
        floors_(links, profile) {}

  // A section whose candidates all turn out too large is none, and others are chosen.
  Result<std::vector<ProgramSection>> Run() {
    for (;;) {
      OOC_ASSIGN(const std::vector<Range> ranges, Choose());
      std::vector<ProgramSection> sections;
      for (const Range& range : ranges) {
        Section& section = sections_[range];
        if (IsLong(range) && section.booking == nullptr) OOC_TRY(Book(range, &section));
        if (IsLong(range) && section.seconds == kNever) break;
        sections.push_back({range.first, range.second, section.seconds, section.booking});
      }
      if (sections.size() == ranges.size()) return sections;
    }
  }

  Result<double> Price() {
    OOC_ASSIGN(const std::vector<Range> ranges, Choose());
    double seconds = 0.0;
    for (const Range& range : ranges) seconds += sections_[range].seconds;
    return seconds;
  }

 private:
  using Range = std::pair<size_t, size_t>;  // of links
  // What is known of links as a section of their own.
  struct Section {
    double seconds = kNever;  // predicted; kNever where nothing fits
    Ranked ranked;            // candidates that have not been tried
    std::shared_ptr<const ProgramBooking> booking;
  };

  // To the end of a link, from the section that ends there.
  struct Way {
    double seconds = kNever;
    size_t from = 0;
    void Take(const Way& other) {
      if (other.seconds < seconds) *this = other;
    }
  };

  static bool IsLong(const Range& range) { return range.second - range.first > 1; }

  [[nodiscard]] bool Late() const {
    return std::chrono::steady_clock::now() > links_.front().deadline;
  }

  // No run of the links one by one takes less.
  [[nodiscard]] double SeparateSeconds() const {
    double seconds = 0.0;
    for (const PlanRequest& link : links_) seconds += FloorOf(link, profile_);
    return seconds;
  }

  // By the best way to come to each link's end.
  Result<std::vector<Range>> Choose() {
    const size_t count = links_.size();
    OOC_ASSIGN(const double whole, SecondsOf({0, count}));
    const double least = std::max(SeparateSeconds(), kGain * floors_.Of(0, count));
    if (count > 1 && whole < kNever && whole <= least) return std::vector<Range>{{0, count}};
    std::vector<Way> ways(count + 1);
    ways[0].seconds = 0.0;
    for (size_t end = 1; end <= count; ++end) {
      ways[end].from = end - 1;
      OOC_TRY(TakeSections(end, &ways));
      // A search takes longer for a link alone than for a chain, and most often none is called for.
      const double before = ways[end - 1].seconds;
      const double floor = before + FloorOf(links_[end - 1], profile_);
      if (ways[end].seconds < kNever && floor >= ways[end].seconds) continue;
      OOC_ASSIGN(const double alone, SecondsOf({end - 1, end}));
      ways[end].Take({before + alone, end - 1});
    }
    std::vector<Range> ranges;
    for (size_t end = count; end > 0; end = ways[end].from) {
      ranges.emplace_back(ways[end].from, end);
    }
    std::reverse(ranges.begin(), ranges.end());
    return ranges;
  }

  // Of several links, that end there. First what was best one link before, as it often is again:
  // then the floors of most others show that they gain nothing.
  Status TakeSections(size_t end, std::vector<Way>* ways) {
    const size_t likely = (*ways)[end - 1].from;
    size_t fits = 0;  // nothing that begins before it
    const auto take = [&](size_t begin) -> Status {
      const double before = (*ways)[begin].seconds;
      if (before + kGain * floors_.Of(begin, end) >= (*ways)[end].seconds) return {};
      if (!CheckDepthFirst(chain_, begin, end).ok()) return {};
      OOC_ASSIGN(const double own, SecondsOf({begin, end}));
      if (own == kNever) fits = std::max(fits, begin + 1);
      (*ways)[end].Take({before + own, begin});
      return {};
    };
    if (likely + 1 < end) OOC_TRY(take(likely));
    for (size_t begin = end - 1; begin-- > fits;) OOC_TRY(take(begin));
    return {};
  }

  // What a section is predicted to take; kNever where nothing fits, or there is no time to look.
  Result<double> SecondsOf(const Range& range) {
    if (const auto known = sections_.find(range); known != sections_.end()) {
      return known->second.seconds;
    }
    if (IsLong(range) && Late()) return kNever;
    if (IsLong(range) && !CheckDepthFirst(chain_, range.first, range.second).ok()) return kNever;
    Section& section = sections_[range];
    if (!IsLong(range)) {
      OOC_ASSIGN(section.seconds, SecondsAlone(links_[range.first]));
      return section.seconds;
    }
    const ProgramRequest request = RequestOf(range);
    Result<Ranked> found = SearchChain(request, profile_);
    OOC_TRY(Fatal(found.status()));
    if (!found.ok()) return kNever;
    section.ranked = std::move(found).value();
    section.seconds = section.ranked.front().cost.seconds;
    return section.seconds;
  }

  // Whether a plan fits, the link's own call finds out.
  [[nodiscard]] Result<double> SecondsAlone(const PlanRequest& link) const {
    const double last_resort = kLastResort * FloorOf(link, profile_);
    if (Late()) return last_resort;
    const Result<PlanSearch> search = Search(WithoutBounce(link), profile_);
    if (search.status().code() == Code::kUnsupported) return search.status();
    return search.ok() ? search->ranked.front().cost.seconds : last_resort;
  }

  [[nodiscard]] ProgramRequest RequestOf(const Range& range) const {
    ProgramRequest request{SectionOf(chain_, range.first, range.second), {}};
    for (size_t i = range.first; i < range.second; ++i) {
      PlanRequest link = links_[i];
      link.problem = request.program[i - range.first];
      link.may_compile = true;  // arithmetic is most of what a chain takes
      link.fuses = true;
      for (int o = 0; o < kOperands; ++o) {
        if (!request.program.IsInner(i - range.first, static_cast<Operand>(o))) continue;
        link.tiers[o] = Tier::kTile;
        link.in_place[o] = false;
      }
      request.nodes.push_back(std::move(link));
    }
    return request;
  }

  // Prepares the candidates in order until one fits: without an epilogue in an engine that refuses
  // it, without an engine that refuses once more, without tiles that keep rows for each other where
  // an engine refuses that, and where what could have been used in place is
  // not, with slots for all.
  Status Book(const Range& range, Section* section) {
    ProgramRequest request = RequestOf(range);
    Ranked ranked = std::exchange(section->ranked, {});
    while (!ranked.empty()) {
      OOC_ASSIGN(const bool refused, TryAll(ranked, &request, section));
      if (section->booking != nullptr) return {};
      if (!refused && !HopesForPlace(request)) break;
      for (PlanRequest& link : request.nodes) {
        if (!refused) link.in_place = {};
      }
      Result<Ranked> found = SearchChain(request, profile_);
      OOC_TRY(Fatal(found.status()));
      ranked = found.ok() ? std::move(found).value() : Ranked();
    }
    section->seconds = kNever;
    return {};
  }

  // True where it ended because an engine refuses, and the request does without from now on.
  Result<bool> TryAll(const Ranked& ranked, ProgramRequest* request, Section* section) {
    for (const RankedProgram& one : ranked) {
      if (Late() && &one != &ranked.front()) break;
      Result<ProgramBooking> booking = oocdnn::Book(device_, *request, one.candidate);
      prepared_ += static_cast<int64_t>(request->nodes.size());
      if (booking.ok()) {
        section->booking = std::make_shared<const ProgramBooking>(std::move(booking).value());
        section->seconds = one.cost.seconds;
        return false;
      }
      const Status& why = booking.status();
      OOC_TRY(Fatal(why));
      Log(LogLevel::kDebug, "chain: %s", why.message().c_str());
      if (why.code() != Code::kUnsupported || why.detail() == kShortTiles) continue;
      if (why.detail() == kSweeps) {
        request->sweeps = false;
        return true;
      }
      const auto number = static_cast<size_t>(why.detail());
      const int engine = one.candidate.engine[number];
      PlanRequest& link = request->nodes[number];
      EngineInfo& refusing = link.engines[static_cast<size_t>(engine)];
      if (Fuses(link, engine)) {
        refusing.finishes = false;
      } else {
        refusing.name.clear();
      }
      return true;
    }
    return false;
  }

  Device& device_;
  const Program& chain_;
  const std::vector<PlanRequest>& links_;
  const Profile& profile_;
  int64_t& prepared_;
  const ChainFloors floors_;
  std::map<Range, Section> sections_;
};

}  // namespace

Result<std::vector<ProgramSection>> PlanChain(Device& device, const Program& chain,
                                              const std::vector<PlanRequest>& links,
                                              const Profile& profile, int64_t* prepared) {
  return ChainPlanner(device, chain, links, profile, prepared).Run();
}

Result<double> PriceChain(Device& device, const Program& chain,
                          const std::vector<PlanRequest>& links, const Profile& profile) {
  int64_t prepared = 0;
  return ChainPlanner(device, chain, links, profile, &prepared).Price();
}

}  // namespace oocdnn
