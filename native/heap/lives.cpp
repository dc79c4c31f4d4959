#include "heap/lives.hpp"

#include <algorithm>
#include <limits>

namespace oocdnn::heap {
namespace {

constexpr int32_t kNone = std::numeric_limits<int32_t>::min();  // a small allocation

}  // namespace

// One walk over the requests.
class Lives::Reader {
 public:
  Reader(Lives* lives, const Requests& requests, const Rules& rules)
      : lives_(lives), rules_(rules), open_(requests.numbers), latest_(requests.numbers, kNone) {}

  void Carry(const Requests& requests, const std::vector<Block*>& left) {
    lives_->old_ends_.assign(requests.carried.size(), kNever);
    for (size_t place = 0; place < requests.carried.size(); ++place) {
      const Item& item = requests.carried[place];
      const bool large = left[place] != nullptr && !rules_.IsSmall(item.bytes);
      open_.Push(item.number, large ? -1 - static_cast<int32_t>(place) : kNone);
    }
  }

  void Read(const Requests& requests) {
    const Item* item = requests.items.data();
    for (const Group& group : requests.groups) {
      Part& part = lives_->parts_.emplace_back();
      part.steers = group.steers;
      for (int64_t i = 0; i < group.items; ++i, ++item) {
        const bool leading = i < group.frees;
        if (item->bytes == 0) {
          if (const int32_t life = End(item->number); life != kNone) {
            leading ? part.frees.push_back(life) : part.events.push_back({false, life});
          }
        } else {
          Begin(*item, &part);
        }
      }
      part.ends = moment_;
    }
  }

  void Finish(const Requests& requests, const std::vector<Block*>& left) {
    std::vector<Life>& lives = lives_->lives_;
    lives_->last_ = moment_ + 1;
    for (size_t place = 0; place < requests.carried.size(); ++place) {
      const Item& item = requests.carried[place];
      const int32_t life = latest_[static_cast<size_t>(item.number)];
      if (life == kNone || left[place] == nullptr || rules_.IsSmall(item.bytes)) continue;
      Life& one = lives[static_cast<size_t>(life)];
      if (one.end == kNever) one.again = std::max(lives_->old_ends_[place], 0);
    }
    for (size_t index = 0; index < lives.size(); ++index) {
      if (lives[index].end == kNever) lives[index].end = lives_->last_;
      if (lives[index].again != kNever) lives_->carried_.push_back(static_cast<int32_t>(index));
    }
  }

 private:
  void Begin(const Item& item, Part* part) {
    if (rules_.IsSmall(item.bytes)) {
      open_.Push(item.number, kNone);
      return;
    }
    const auto life = static_cast<int32_t>(lives_->lives_.size());
    const auto number = static_cast<int32_t>(lives_->parts_.size()) - 1;
    lives_->lives_.push_back({Rounded(item.bytes), ++moment_, kNever, kNever, number, true});
    open_.Push(item.number, life);
    latest_[static_cast<size_t>(item.number)] = life;
    part->events.push_back({true, life});
  }

  // The life that ends; kNone where it is of a small allocation, or there is none.
  int32_t End(int64_t number) {
    const int32_t life = open_.Pop(number).value_or(kNone);
    if (life == kNone) return kNone;
    ++moment_;
    if (life < 0) {
      lives_->old_ends_[static_cast<size_t>(-1 - life)] = moment_;
      return life;
    }
    Life& one = lives_->lives_[static_cast<size_t>(life)];
    one.end = moment_;
    one.leaves = one.part + 1 != static_cast<int32_t>(lives_->parts_.size());
    return life;
  }

  Lives* const lives_;
  const Rules rules_;
  Queues<int32_t> open_;
  std::vector<int32_t> latest_;  // life of each number
  int32_t moment_ = 0;
};

Lives::Lives(const Requests& requests, const Rules& rules, const std::vector<Block*>& left) {
  Reader reader(this, requests, rules);
  reader.Carry(requests, left);
  reader.Read(requests);
  reader.Finish(requests, left);
}

int32_t Lives::OldEnd(size_t place) const {
  return old_ends_[place] == kNever ? last_ : old_ends_[place];
}

}  // namespace oocdnn::heap
