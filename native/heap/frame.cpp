#include "heap/frame.hpp"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace oocdnn::heap {
namespace {

int64_t BytesOf(const std::vector<Interval>& intervals) {
  int64_t bytes = 0;
  for (const Interval& one : intervals) bytes += one.bytes;
  return bytes;
}

}  // namespace

Result<Frame> Frame::Make(const Heap& heap, const Requests& requests, int64_t limit) {
  OOC_ASSIGN(const Totals natural, Simulate(heap, requests));
  Allocator allocator(heap);
  allocator.Trim();
  Frame frame(heap, requests, allocator, FindLeft(requests, allocator));
  frame.FindEnd(limit - natural.reserved_small);  // nothing steers the small pool
  return frame;
}

Frame::Frame(const Heap& heap, const Requests& requests, const Allocator& allocator,
             const std::vector<Block*>& left)
    : heap_(heap),
      requests_(requests),
      lifetimes_(requests, heap.rules, left),
      base_(allocator.totals().base) {
  std::unordered_set<const Block*> passing;
  for (const Block* block : left) {
    const bool is_life = block != nullptr && !heap.rules.IsSmall(block->bytes);
    old_.push_back(is_life ? Interval{block->address, block->bytes} : Interval{});
    passing.insert(block);
  }
  for (const Block* block : allocator.Used()) {
    if (!PieceOf(*block).small && !passing.contains(block)) {
      stays_.push_back({block->address, block->bytes});
    }
  }
}

// As many pages as there is room for, those behind them counted.
void Frame::FindEnd(int64_t room) {
  const int64_t page = heap_.rules.large_page;
  for (;;) {
    const int64_t pages = std::max<int64_t>(room - BytesOf(pages_), 0) / page;
    end_ = base_ + std::min(pages * page, kMostBytes);
    std::vector<Interval> behind = PagesBehind();
    if (behind == pages_) return;
    pages_ = std::move(behind);
  }
}

std::vector<Interval> Frame::PagesBehind() const {
  const int64_t page = heap_.rules.large_page;
  std::vector<Interval> found, used = Used();
  std::sort(used.begin(), used.end());
  for (const Interval& one : used) {
    if (one.end() <= end_) continue;
    int64_t first = std::max(base_ + (one.address - base_) / page * page, end_);
    const int64_t last = base_ + (one.end() - base_ + page - 1) / page * page;
    if (!found.empty() && first <= found.back().end()) {
      first = found.back().address;
      found.pop_back();
    }
    found.push_back({first, last - first});
  }
  return found;
}

std::vector<Interval> Frame::Ranges() const {
  std::vector<Interval> found{{base_, end_ - base_}};
  found.insert(found.end(), pages_.begin(), pages_.end());
  return found;
}

std::vector<Interval> Frame::Used() const {
  std::vector<Interval> used = stays_;
  std::copy_if(old_.begin(), old_.end(), std::back_inserter(used),
               [](const Interval& one) { return one.bytes != 0; });
  return used;
}

bool Frame::IsPossible() const {
  std::vector<int64_t> changes(static_cast<size_t>(lifetimes_.last()) + 1);
  const auto add = [&](int64_t bytes, int32_t from, int32_t to) {
    changes[static_cast<size_t>(from)] += bytes;
    changes[static_cast<size_t>(to)] -= bytes;
  };
  for (size_t place = 0; place < old_.size(); ++place) {
    if (old_[place].address >= base_) add(old_[place].bytes, 0, lifetimes_.OldEnd(place));
  }
  for (const Lifetime& lifetime : lifetimes_.all())
    add(lifetime.bytes, lifetime.begin, lifetime.end);
  int64_t bytes = 0;
  for (const Interval& one : stays_) bytes += one.address >= base_ ? one.bytes : 0;
  const int64_t mapped = end_ - base_ + BytesOf(pages_);
  return std::all_of(changes.begin(), changes.end(),
                     [&](int64_t change) { return (bytes += change) <= mapped; });
}

bool Frame::IsMapped(const Interval& interval) const {
  return interval.end() <= end_ ||
         std::any_of(pages_.begin(), pages_.end(), [&](const Interval& page) {
           return page.address <= interval.address && interval.end() <= page.end();
         });
}

// The steps as a steering has them.
class Frame::Checker {
 public:
  Checker(const Frame& frame, Steering* steering)
      : frame_(frame), steering_(steering), allocator_(frame.heap_) {}

  Result<bool> Run() {
    allocator_.Trim();
    OOC_TRY(allocator_.Fill(frame_.end_).status());
    const int64_t before = allocator_.totals().reserved();
    Walk walk(frame_.requests_, &allocator_);
    for (int step = 0; step < kSteps; ++step) {
      OOC_ASSIGN(const bool agrees, Step(&walk));
      if (!agrees) return false;
    }
    const Totals totals = allocator_.totals();
    steering_->end = frame_.end_;
    steering_->reserved = std::max(totals.reserved(), before);
    return totals.reserved_large <= frame_.end_ - frame_.base_ + BytesOf(frame_.pages_);
  }

 private:
  Result<bool> Step(Walk* walk) {
    const Item* item = frame_.requests_.items.data();
    auto act = steering_->acts.begin();
    for (size_t number = 0; number < frame_.requests_.groups.size(); ++number) {
      const Group& group = frame_.requests_.groups[number];
      if (!group.steers) GiveAll();
      for (int64_t i = 0; i < group.items; ++i) {
        if (i == group.frees) {
          OOC_ASSIGN(const bool agrees, DoActs(static_cast<int64_t>(number), &act));
          if (!agrees) return false;
        }
        OOC_TRY(walk->Do(*item++));
      }
    }
    GiveAll();
    return true;
  }

  void GiveAll() {
    for (const auto& [address, block] : held_) allocator_.Free(block);
    held_.clear();
  }

  Result<bool> DoActs(int64_t group, std::vector<Act>::iterator* act) {
    for (; *act != steering_->acts.end() && (*act)->group == group; ++*act) {
      const int64_t address = (*act)->address;
      if ((*act)->bytes == 0) {
        const auto one = held_.find(address);
        if (one == held_.end()) return false;
        allocator_.Free(one->second);
        held_.erase(one);
        continue;
      }
      OOC_ASSIGN(Block* const block, allocator_.Allocate((*act)->bytes));
      if (block->address != address) return false;
      held_.emplace(address, block);
    }
    return true;
  }

  const Frame& frame_;
  Steering* const steering_;
  Allocator allocator_;
  std::unordered_map<int64_t, Block*> held_;  // by address
};

Result<bool> Frame::Check(Steering* steering) const { return Checker(*this, steering).Run(); }

}  // namespace oocdnn::heap
