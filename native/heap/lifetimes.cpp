#include "heap/lifetimes.hpp"

#include <algorithm>
#include <limits>

namespace oocdnn::heap {
namespace {

constexpr int32_t kNone = std::numeric_limits<int32_t>::min();  // a small allocation

}  // namespace

// One walk over the requests.
class Lifetimes::Reader {
 public:
  Reader(Lifetimes* lifetimes, const Requests& requests, const Rules& rules)
      : lifetimes_(lifetimes),
        rules_(rules),
        open_(requests.numbers),
        latest_(requests.numbers, kNone) {}

  void Carry(const Requests& requests, const std::vector<Block*>& left) {
    lifetimes_->old_ends_.assign(requests.carried.size(), kNever);
    for (size_t place = 0; place < requests.carried.size(); ++place) {
      const Item& item = requests.carried[place];
      const bool large = left[place] != nullptr && !rules_.IsSmall(item.bytes);
      open_.Push(item.number, large ? -1 - static_cast<int32_t>(place) : kNone);
    }
  }

  void Read(const Requests& requests) {
    const Item* item = requests.items.data();
    for (const Group& group : requests.groups) {
      Part& part = lifetimes_->parts_.emplace_back();
      part.steers = group.steers;
      for (int64_t i = 0; i < group.items; ++i, ++item) {
        const bool leading = i < group.frees;
        if (item->bytes == 0) {
          if (const int32_t lifetime = End(item->number); lifetime != kNone) {
            leading ? part.frees.push_back(lifetime) : part.events.push_back({false, lifetime});
          }
        } else {
          Begin(*item, &part);
        }
      }
      part.ends = moment_;
    }
  }

  void Finish(const Requests& requests, const std::vector<Block*>& left) {
    std::vector<Lifetime>& lifetimes = lifetimes_->lifetimes_;
    lifetimes_->last_ = moment_ + 1;
    for (size_t place = 0; place < requests.carried.size(); ++place) {
      const Item& item = requests.carried[place];
      const int32_t lifetime = latest_[static_cast<size_t>(item.number)];
      if (lifetime == kNone || left[place] == nullptr || rules_.IsSmall(item.bytes)) continue;
      Lifetime& one = lifetimes[static_cast<size_t>(lifetime)];
      if (one.end == kNever) one.again = std::max(lifetimes_->old_ends_[place], 0);
    }
    for (size_t index = 0; index < lifetimes.size(); ++index) {
      if (lifetimes[index].end == kNever) lifetimes[index].end = lifetimes_->last_;
      if (lifetimes[index].again != kNever)
        lifetimes_->carried_.push_back(static_cast<int32_t>(index));
    }
  }

 private:
  void Begin(const Item& item, Part* part) {
    if (rules_.IsSmall(item.bytes)) {
      open_.Push(item.number, kNone);
      return;
    }
    const auto lifetime = static_cast<int32_t>(lifetimes_->lifetimes_.size());
    const auto number = static_cast<int32_t>(lifetimes_->parts_.size()) - 1;
    lifetimes_->lifetimes_.push_back(
        {Rounded(item.bytes), ++moment_, kNever, kNever, number, true});
    open_.Push(item.number, lifetime);
    latest_[static_cast<size_t>(item.number)] = lifetime;
    part->events.push_back({true, lifetime});
  }

  // The lifetime that ends; kNone where it is of a small allocation, or there is none.
  int32_t End(int64_t number) {
    const int32_t lifetime = open_.Pop(number).value_or(kNone);
    if (lifetime == kNone) return kNone;
    ++moment_;
    if (lifetime < 0) {
      lifetimes_->old_ends_[static_cast<size_t>(-1 - lifetime)] = moment_;
      return lifetime;
    }
    Lifetime& one = lifetimes_->lifetimes_[static_cast<size_t>(lifetime)];
    one.end = moment_;
    one.leaves = one.part + 1 != static_cast<int32_t>(lifetimes_->parts_.size());
    return lifetime;
  }

  Lifetimes* const lifetimes_;
  const Rules rules_;
  Queues<int32_t> open_;
  std::vector<int32_t> latest_;  // lifetime of each number
  int32_t moment_ = 0;
};

Lifetimes::Lifetimes(const Requests& requests, const Rules& rules,
                     const std::vector<Block*>& left) {
  Reader reader(this, requests, rules);
  reader.Carry(requests, left);
  reader.Read(requests);
  reader.Finish(requests, left);
}

int32_t Lifetimes::OldEnd(size_t place) const {
  return old_ends_[place] == kNever ? last_ : old_ends_[place];
}

}  // namespace oocdnn::heap
