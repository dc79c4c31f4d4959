#include "model/rank.hpp"

#include <algorithm>
#include <iterator>

namespace oocdnn {
namespace {

constexpr double kEqual = 1.01;

void Append(std::vector<RankedCandidate> from, std::vector<RankedCandidate>* to) {
  for (RankedCandidate& entry : from) {
    const bool known = std::any_of(to->begin(), to->end(), [&](const RankedCandidate& other) {
      return other.candidate == entry.candidate;
    });
    if (!known) to->push_back(std::move(entry));
  }
}

}  // namespace

void Rank(std::vector<RankedCandidate>* candidates) {
  const auto faster = [](const RankedCandidate& a, const RankedCandidate& b) {
    return a.cost.seconds < b.cost.seconds;
  };
  const auto smaller = [](const RankedCandidate& a, const RankedCandidate& b) {
    return a.cost.device_bytes < b.cost.device_bytes;
  };
  std::stable_sort(candidates->begin(), candidates->end(), faster);
  for (auto begin = candidates->begin(); begin != candidates->end();) {
    const double limit = begin->cost.seconds * kEqual;
    const auto end = std::find_if(begin, candidates->end(), [&](const RankedCandidate& entry) {
      return entry.cost.seconds > limit;
    });
    std::stable_sort(begin, end, smaller);
    begin = end;
  }
}

std::vector<RankedCandidate> Merge(Families families, int best) {
  auto *first = &families.uncut, *second = &families.cut;
  const bool gains = !second->empty() &&
                     (first->empty() || second->front().cost.seconds * kPartialSumsGain <
                                            first->front().cost.seconds);
  if (gains) std::swap(first, second);
  const auto most = static_cast<size_t>(std::max(best, 1));
  const size_t room = second->empty() || most < 2 ? most : most - 1;
  if (first->size() > room) first->resize(room);
  std::vector<RankedCandidate> merged;
  if (families.whole) merged.push_back(std::move(*families.whole));
  Append(std::move(*first), &merged);
  Append(std::move(*second), &merged);
  if (merged.size() > most) merged.resize(most);
  return merged;
}

}  // namespace oocdnn
