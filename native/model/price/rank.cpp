#include "model/price/rank.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "model/price/cost.hpp"

namespace oocdnn {
namespace {

// One tile is the same plan in any loop order.
bool Same(const Candidate& a, const Candidate& b) {
  return a.tiling == b.tiling && a.depths == b.depths && a.engine == b.engine &&
         (a.order == b.order || a.tiling.Tiles() <= 1);
}

void Append(const std::vector<RankedCandidate>& from, std::vector<RankedCandidate>* to) {
  for (const RankedCandidate& entry : from) {
    const bool known = std::any_of(to->begin(), to->end(), [&](const RankedCandidate& other) {
      return Same(other.candidate, entry.candidate);
    });
    if (!known) to->push_back(entry);
  }
}

// The first `room` of a ranked list; the last of them frugal, if any of the list is.
void Shorten(std::vector<RankedCandidate>* list, int64_t budget, size_t room) {
  if (list->size() <= room) return;
  const auto frugal = [&](const RankedCandidate& entry) {
    return static_cast<double>(entry.cost.device_bytes) <=
           kFrugalShare * static_cast<double>(budget);
  };
  const auto end = list->begin() + static_cast<std::ptrdiff_t>(room);
  if (room >= 2 && std::none_of(list->begin(), end, frugal)) {
    const auto found = std::find_if(end, list->end(), frugal);
    if (found != list->end()) std::iter_swap(end - 1, found);
  }
  list->resize(room);
}

}  // namespace

bool Families::CutLeads() const {
  if (cut.empty() || uncut.empty()) return uncut.empty();
  return cut.front().cost.seconds * kPartialSumsGain < uncut.front().cost.seconds;
}

double Families::Seconds() const {
  if (whole) return whole->cost.seconds;
  const std::vector<RankedCandidate>& first = CutLeads() ? cut : uncut;
  return first.empty() ? kNever : first.front().cost.seconds;
}

void Rank(std::vector<RankedCandidate>* candidates) {
  const auto rank = [](const RankedCandidate& entry) {
    return RankOf(entry.cost, entry.cost.seconds);
  };
  const auto faster = [&](const RankedCandidate& a, const RankedCandidate& b) {
    return rank(a) < rank(b);
  };
  const auto smaller = [](const RankedCandidate& a, const RankedCandidate& b) {
    return std::tuple(a.cost.waits, a.cost.gaps, a.cost.device_bytes) <
           std::tuple(b.cost.waits, b.cost.gaps, b.cost.device_bytes);
  };
  std::stable_sort(candidates->begin(), candidates->end(), faster);
  for (auto begin = candidates->begin(); begin != candidates->end();) {
    const double limit = rank(*begin) * kEqual;
    const auto end = std::find_if(begin, candidates->end(), [&](const RankedCandidate& entry) {
      return rank(entry) > limit;
    });
    std::stable_sort(begin, end, smaller);
    begin = end;
  }
}

std::vector<RankedCandidate> Merge(Families families, int64_t budget, int best) {
  auto *first = &families.uncut, *second = &families.cut;
  if (families.CutLeads()) std::swap(first, second);
  const auto most = static_cast<size_t>(std::max(best, 1));
  const size_t room = second->empty() || most < 2 ? most : most - 1;
  Shorten(first, budget, room);
  std::vector<RankedCandidate> merged;
  if (families.whole) merged.push_back(*families.whole);
  Append(*first, &merged);
  Append(*second, &merged);
  if (merged.size() > most) merged.resize(most);
  return merged;
}

}  // namespace oocdnn
