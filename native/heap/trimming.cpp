#include "heap/trimming.hpp"

#include <algorithm>

namespace oocdnn::heap {
namespace {

constexpr size_t kNowhere = static_cast<size_t>(-1);
constexpr int kTrimmedSteps = 6;  // that are simulated: each begins with what the one before leaves

// Steps with trims at certain groups.
class Trial {
 public:
  Trial(const Heap& heap, const Requests& requests, int64_t limit)
      : heap_(heap), requests_(requests), limit_(limit), bytes_(requests.groups.size(), kNone) {}

  void TrimAt(size_t group) { bytes_[group] = 0; }
  [[nodiscard]] bool TrimsAt(size_t group) const { return bytes_[group] != kNone; }

  // The group whose requests pass the limit first; kNowhere where none does.
  Result<size_t> Run() {
    for (int64_t& bytes : bytes_) bytes = std::min<int64_t>(bytes, 0);
    Allocator allocator(heap_);
    allocator.Trim();
    Walk walk(requests_, &allocator);
    most_ = allocator.totals().reserved();
    for (int step = 0; step < kTrimmedSteps; ++step) {
      const Item* item = requests_.items.data();
      for (size_t group = 0; group < requests_.groups.size(); ++group) {
        const Item* const point = item + requests_.groups[group].frees;
        const Item* const end = item + requests_.groups[group].items;
        while (item != point) OOC_TRY(walk.Do(*item++));
        if (TrimsAt(group)) Trim(group, &allocator);
        while (item != end) OOC_TRY(walk.Do(*item++));
        most_ = std::max(most_, allocator.totals().reserved());
        if (most_ > limit_) return group;
      }
    }
    return kNowhere;
  }

  [[nodiscard]] Trimming found() const {
    Trimming found;
    found.reserved = most_;
    for (size_t group = 0; group < bytes_.size(); ++group) {
      if (TrimsAt(group)) found.trims.push_back({static_cast<int64_t>(group), bytes_[group]});
    }
    return found;
  }

 private:
  static constexpr int64_t kNone = -1;

  void Trim(size_t group, Allocator* allocator) {
    const int64_t before = allocator->totals().reserved();
    allocator->Trim();
    bytes_[group] = std::max(bytes_[group], before - allocator->totals().reserved());
  }

  const Heap& heap_;
  const Requests& requests_;
  const int64_t limit_;
  std::vector<int64_t> bytes_;  // given back at each group
  int64_t most_ = 0;
};

}  // namespace

Result<std::optional<Trimming>> FindTrims(const Heap& heap, const Requests& requests,
                                          int64_t limit) {
  if (requests.groups.empty()) return std::optional<Trimming>();
  Trial trial(heap, requests, limit);
  for (size_t trims = 0; trims <= kMostTrims; ++trims) {
    OOC_ASSIGN(size_t group, trial.Run());
    if (group == kNowhere) return std::optional(trial.found());
    while (!requests.groups[group].steers && group > 0) --group;
    if (!requests.groups[group].steers || trial.TrimsAt(group)) return std::optional<Trimming>();
    trial.TrimAt(group);
  }
  return std::optional<Trimming>();
}

}  // namespace oocdnn::heap
