#include "library/chain_planner.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/log.hpp"
#include "model/cost.hpp"
#include "model/rank.hpp"

namespace oocdnn {
namespace {

// What the least plan of a link may take, as long as its floor: it is tried where nothing else is.
constexpr double kLastResort = 100.0;

// What sections of a chain leave for each other passes through host memory.
class ChainPlanner {
 public:
  ChainPlanner(Device& device, const std::vector<PlanRequest>& links, const Profile& profile,
               int64_t* prepared)
      : device_(device), links_(links), profile_(profile), prepared_(*prepared) {}

  // A section whose candidates all turn out too large is none, and others are chosen.
  Result<std::vector<ChainSection>> Run() {
    for (;;) {
      OOC_ASSIGN(const std::vector<Range> ranges, Choose());
      std::vector<ChainSection> sections;
      for (const Range& range : ranges) {
        OOC_ASSIGN(ChainSection section, Book(range));
        if (section.seconds == kNever) break;
        sections.push_back(std::move(section));
      }
      if (sections.size() == ranges.size()) return sections;
      seconds_[ranges[sections.size()]] = kNever;
    }
  }

 private:
  using Range = std::pair<size_t, size_t>;  // of links

  // No run of the links one by one takes less.
  [[nodiscard]] double SeparateSeconds() const {
    double seconds = 0.0;
    for (const PlanRequest& link : links_) seconds += FloorOf(link, profile_);
    return seconds;
  }

  // For each link the best way to come to its end, from the section that ends there.
  Result<std::vector<Range>> Choose() {
    const Range all{0, links_.size()};
    OOC_ASSIGN(const double whole, SecondsOf(all));
    if (links_.size() > 1 && whole <= SeparateSeconds()) return std::vector<Range>{all};
    struct Way {
      double seconds = kNever;
      size_t from = 0;
    };
    std::vector<Way> ways(links_.size() + 1);
    ways[0].seconds = 0.0;
    for (size_t end = 1; end <= links_.size(); ++end) {
      for (size_t begin = end; begin-- > 0;) {
        OOC_ASSIGN(const double own, SecondsOf({begin, end}));
        if (own == kNever) break;  // nor does anything longer fit
        const double seconds = ways[begin].seconds + own;
        if (seconds < ways[end].seconds) ways[end] = {seconds, begin};
      }
    }
    std::vector<Range> ranges;
    for (size_t end = links_.size(); end > 0; end = ways[end].from) {
      ranges.emplace_back(ways[end].from, end);
    }
    std::reverse(ranges.begin(), ranges.end());
    return ranges;
  }

  // What a section is predicted to take; kNever where nothing fits.
  Result<double> SecondsOf(const Range& range) {
    if (const auto known = seconds_.find(range); known != seconds_.end()) return known->second;
    double& seconds = seconds_[range] = kNever;
    if (range.second - range.first == 1) {
      const PlanRequest& link = links_[range.first];
      const Result<PlanSearch> search = Search(WithoutBounce(link), profile_);
      if (search.status().code() == Code::kUnsupported) return search.status();
      return seconds = search.ok() ? search->ranked.front().cost.seconds
                                   : kLastResort * FloorOf(link, profile_);
    }
    OOC_ASSIGN(const ChainRequest request, RequestOf(range));
    const Result<std::vector<RankedChain>> found = SearchChain(request, profile_);
    OOC_TRY(Known(found.status()));
    return seconds = found.ok() ? found->front().cost.seconds : kNever;
  }

  Result<ChainRequest> RequestOf(const Range& range) {
    std::vector<Problem> problems;
    for (size_t i = range.first; i < range.second; ++i) problems.push_back(links_[i].problem);
    OOC_ASSIGN(Chain chain, MakeChain(problems));
    ChainRequest request{std::move(chain), {}};
    for (size_t i = range.first; i < range.second; ++i) {
      PlanRequest link = links_[i];
      link.problem = request.chain[i - range.first];
      for (int o = 0; o < kOperands; ++o) {
        if (!IsInner(request.chain, i - range.first, static_cast<Operand>(o))) continue;
        link.home[o] = Home::kTile;
        link.in_place[o] = false;
      }
      request.links.push_back(std::move(link));
    }
    return request;
  }

  // Prepares the candidates in order until one fits; without an engine that refuses once more.
  Result<ChainSection> Book(const Range& range) {
    ChainSection section{range.first, range.second, seconds_[range], nullptr};
    if (range.second - range.first == 1) return section;
    OOC_ASSIGN(ChainRequest request, RequestOf(range));
    section.seconds = kNever;
    for (bool again = true; again;) {
      again = false;
      const Result<std::vector<RankedChain>> found = SearchChain(request, profile_);
      OOC_TRY(Known(found.status()));
      if (!found.ok()) return section;
      for (const RankedChain& ranked : found.value()) {
        Result<ChainBooking> booking = BookChain(device_, request, ranked.candidate);
        prepared_ += static_cast<int64_t>(request.links.size());
        if (booking.ok()) return Keep(std::move(booking).value(), ranked.cost, range);
        OOC_TRY(Known(booking.status()));
        if (booking.status().code() != Code::kUnsupported) continue;
        Refuse(booking.status(), ranked.candidate, &request);
        again = true;
        break;
      }
    }
    return section;
  }

  // What is wanting for a section may do for a shorter one; anything else ends the search.
  static Status Known(const Status& status) {
    const bool wanting = status.code() == Code::kOutOfMemory || status.code() == Code::kUnsupported;
    return wanting ? Status() : status;
  }

  static ChainSection Keep(ChainBooking booking, const Cost& cost, const Range& range) {
    return {range.first, range.second, cost.seconds,
            std::make_unique<ChainBooking>(std::move(booking))};
  }

  static void Refuse(const Status& why, const ChainCandidate& candidate, ChainRequest* request) {
    Log(LogLevel::kDebug, "chain: %s", why.message().c_str());
    const auto link = static_cast<size_t>(why.detail());
    request->links[link].engines[static_cast<size_t>(candidate.engine[link])].name.clear();
  }

  Device& device_;
  const std::vector<PlanRequest>& links_;
  const Profile& profile_;
  int64_t& prepared_;
  std::map<Range, double> seconds_;  // see SecondsOf
};

}  // namespace

Result<std::vector<ChainSection>> PlanChain(Device& device, const std::vector<PlanRequest>& links,
                                            const Profile& profile, int64_t* prepared) {
  return ChainPlanner(device, links, profile, prepared).Run();
}

}  // namespace oocdnn
