#include "heap/steering.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "heap/acts.hpp"
#include "heap/arena.hpp"
#include "heap/placement.hpp"

namespace oocdnn::heap {
namespace {

constexpr int kOrders = 300;    // of the first placement
constexpr int kAgain = 25;      // orders of a placement of the rest
constexpr size_t kPlanned = 4;  // sets of holes of a group that follow from the placement
constexpr size_t kHoles = 12;   // random ones
constexpr size_t kEnds = 6;     // different outcomes of a group that are followed

size_t Index(int32_t number) { return static_cast<size_t>(number); }

// A group's allocations with certain holes.
struct Outcome {
  Arena arena;                     // after the group
  std::vector<int64_t> addresses;  // of the lifetimes that begin in it
  std::vector<Interval> taken;     // by the runtime
  std::vector<Interval> opened;    // free before the group, without what is taken
  int64_t beyond = 0;              // allocations that end behind the range
  int64_t conflicts = 0;           // later allocations whose places are taken

  [[nodiscard]] std::pair<int64_t, int64_t> cost() const { return {beyond, conflicts}; }
  [[nodiscard]] bool is_harmless() const { return beyond == 0 && conflicts == 0; }
};

// One walk over the step, with random holes where those of the placement do not serve.
class Search {
 public:
  Search(const Frame& frame, uint64_t seed, Deadline* deadline);

  // False where some group has no outcome that serves.
  bool Run(std::vector<Act>* acts);

 private:
  [[nodiscard]] Interval IntervalOf(int32_t lifetime) const;
  bool Place(int32_t moment, int tries);
  std::optional<Outcome> Best(const Part& part);
  std::optional<Outcome> Followed(const Part& part, std::vector<Outcome> outcomes);
  void SetPlan(const Part& part);
  void Settle(const Outcome& outcome, bool settled);
  std::vector<Interval> Holes(size_t number);
  std::vector<Interval> RandomHoles();
  Interval RandomHole(Interval clear);
  Outcome Try(const Part& part, const std::vector<Interval>* holes);
  [[nodiscard]] int64_t ConflictsOf(const Lifetime& lifetime, int64_t address, int32_t next) const;
  [[nodiscard]] Steered SteeredOf(const Part& part, Divided divided) const;

  const Frame& frame_;
  const Lifetimes& lifetimes_;
  const std::vector<Interval> ranges_, unmapped_;
  Deadline* const deadline_;
  Random random_;
  Placement placement_;
  std::vector<char> open_;  // lifetimes that have not begun
  std::vector<int64_t> addresses_;
  Arena arena_;
  std::vector<Interval> taken_;

  // Of the group that has its turn.
  std::vector<int32_t> mine_;                       // lifetimes that begin in it
  std::vector<Interval> places_, outlive_, short_;  // of these in the placement
  std::vector<Interval> clear_;  // what is free beside those that outlive it, the largest first
};

Search::Search(const Frame& frame, uint64_t seed, Deadline* deadline)
    : frame_(frame),
      lifetimes_(frame.lifetimes()),
      ranges_(frame.Ranges()),
      unmapped_(Unmapped(ranges_)),
      deadline_(deadline),
      random_(seed),
      placement_(frame.lifetimes(), frame.base(), ~seed),
      open_(frame.lifetimes().size(), 1),
      addresses_(frame.lifetimes().size(), -1),
      arena_(frame.Used(), ranges_, unmapped_) {}

bool Search::Run(std::vector<Act>* acts) {
  if (!Place(0, kOrders)) return false;
  const Arena begin = arena_;
  std::vector<Steered> steered;
  for (const Part& part : lifetimes_.parts()) {
    for (const Interval& one : taken_) arena_.Give(one);
    taken_.clear();
    for (const int32_t lifetime : part.frees) arena_.Give(IntervalOf(lifetime));
    if (part.events.empty()) {
      steered.push_back(SteeredOf(part, {}));
      continue;
    }
    std::optional<Outcome> outcome = Best(part);
    if (!outcome) return false;
    Settle(*outcome, true);
    arena_ = std::move(outcome->arena);
    taken_ = outcome->taken;
    steered.push_back(SteeredOf(part, {std::move(outcome->opened), std::move(outcome->taken)}));
  }
  *acts = ActsOf(steered, begin, ranges_, frame_.least(), deadline_);
  return true;
}

Interval Search::IntervalOf(int32_t lifetime) const {
  if (lifetime < 0) return frame_.old()[Index(-1 - lifetime)];
  return {addresses_[Index(lifetime)], lifetimes_[Index(lifetime)].bytes};
}

// Places what is open beside what is not.
bool Search::Place(int32_t moment, int tries) {
  std::vector<Span> fixed;
  const auto fix = [&](const Interval& one, int32_t from, int32_t to) {
    fixed.push_back({one.address, one.end(), from, to});
  };
  for (const Interval& one : frame_.stays()) fix(one, -1, lifetimes_.last() + 1);
  for (size_t place = 0; place < frame_.old().size(); ++place) {
    if (frame_.old()[place].bytes != 0) fix(frame_.old()[place], -1, lifetimes_.OldEnd(place));
  }
  bool any = false;
  for (size_t index = 0; index < lifetimes_.size(); ++index) {
    any = any || open_[index] != 0;
    if (open_[index] != 0) continue;
    const Lifetime& lifetime = lifetimes_[index];
    const Interval interval{addresses_[index], lifetime.bytes};
    if (lifetime.end > moment) fix(interval, 0, lifetime.end);
    if (lifetime.again != kNever) fix(interval, -1, lifetime.again);
  }
  return !any || placement_.Improve(std::move(fixed), open_, frame_.end(), tries, deadline_);
}

// The outcome after which the rest of the step has a place; none if none has.
std::optional<Outcome> Search::Best(const Part& part) {
  SetPlan(part);
  std::vector<Outcome> outcomes;
  outcomes.push_back(Try(part, nullptr));
  for (size_t number = 0; part.steers && number < kPlanned + kHoles; ++number) {
    if (outcomes.back().is_harmless()) break;
    const std::vector<Interval> holes = Holes(number);
    outcomes.push_back(Try(part, &holes));
  }
  if (outcomes.back().is_harmless()) return std::move(outcomes.back());
  return Followed(part, std::move(outcomes));
}

// The first outcome, those that do least harm first, after which the rest can be placed anew.
std::optional<Outcome> Search::Followed(const Part& part, std::vector<Outcome> outcomes) {
  const Placement::State known = placement_.state();
  std::set<std::vector<int64_t>> seen;
  std::stable_sort(outcomes.begin(), outcomes.end(),
                   [](const Outcome& a, const Outcome& b) { return a.cost() < b.cost(); });
  for (Outcome& outcome : outcomes) {
    if (!seen.insert(outcome.addresses).second) continue;
    if (outcome.beyond != 0 || seen.size() > kEnds || deadline_->Passed()) return {};
    placement_.Return(known);
    Settle(outcome, true);
    if (Place(part.ends, kAgain)) return std::move(outcome);
    Settle(outcome, false);
  }
  return {};
}

// What begins in the group, and what the placement has for it.
void Search::SetPlan(const Part& part) {
  mine_.clear(), places_.clear(), outlive_.clear(), short_.clear();
  for (const Event& event : part.events) {
    if (!event.begins) continue;
    const Lifetime& lifetime = lifetimes_[Index(event.lifetime)];
    mine_.push_back(event.lifetime);
    places_.push_back({placement_.AddressOf(event.lifetime), lifetime.bytes});
    (lifetime.leaves ? outlive_ : short_).push_back(places_.back());
  }
  clear_ = Cut(arena_.free(), outlive_, std::span(ranges_).first(1), frame_.least()).taken;
  std::erase_if(clear_, [&](const Interval& one) { return one.bytes <= 2 * frame_.least(); });
  std::stable_sort(clear_.begin(), clear_.end(),
                   [](const Interval& a, const Interval& b) { return a.bytes > b.bytes; });
}

// The group's lifetimes are where the outcome has them, or open again.
void Search::Settle(const Outcome& outcome, bool settled) {
  for (size_t i = 0; i < mine_.size(); ++i) {
    open_[Index(mine_[i])] = settled ? 0 : 1;
    addresses_[Index(mine_[i])] = outcome.addresses[i];
  }
}

// Sets of holes: the places of all, those of what outlives the group with other free intervals for
// the rest, and random ones.
std::vector<Interval> Search::Holes(size_t number) {
  if (number == 0) return places_;
  if (number >= kPlanned) return RandomHoles();
  const size_t counts[] = {clear_.size(), 1, 2};
  const auto count = static_cast<std::ptrdiff_t>(std::min(counts[number - 1], clear_.size()));
  std::vector<Interval> holes = outlive_;
  holes.insert(holes.end(), clear_.begin(), clear_.begin() + count);
  return holes;
}

std::vector<Interval> Search::RandomHoles() {
  std::vector<Interval> holes = outlive_;
  for (const Interval& one : short_) {
    if (random_.Chance(50)) holes.push_back(one);
  }
  for (const Interval& one : clear_) {
    if (random_.Chance(40)) holes.push_back(RandomHole(one));
  }
  return holes;
}

// The free interval, one that begins a little later, or an end of it as long as a short lifetime.
Interval Search::RandomHole(Interval clear) {
  const int64_t least = frame_.least();
  const size_t draw = random_.Below(100);
  if (draw < 30 && clear.bytes > 4 * least) {
    return {clear.address + 2 * least, clear.bytes - 2 * least};
  }
  if (draw >= 50 || short_.empty()) return clear;
  const int64_t bytes = (short_[random_.Below(short_.size())].bytes + least - 1) / least * least;
  if (bytes >= clear.bytes) return clear;
  return {clear.address + (random_.Chance(50) ? clear.bytes - bytes : 0), bytes};
}

// With no holes where they are null: nothing is taken.
Outcome Search::Try(const Part& part, const std::vector<Interval>* holes) {
  Divided divided{arena_.free(), {}};
  if (holes != nullptr) divided = Cut(arena_.free(), *holes, ranges_, frame_.least());
  Outcome made{
      Arena(divided.opened, unmapped_), {}, std::move(divided.taken), std::move(divided.opened)};
  const int32_t next = mine_.empty() ? 0 : mine_.back() + 1;
  for (const Event& event : part.events) {
    if (!event.begins) {
      const bool is_mine = !mine_.empty() && event.lifetime >= mine_.front();
      made.arena.Give(is_mine ? Interval{made.addresses[Index(event.lifetime - mine_.front())],
                                         lifetimes_[Index(event.lifetime)].bytes}
                              : IntervalOf(event.lifetime));
      continue;
    }
    const int64_t bytes = lifetimes_[Index(event.lifetime)].bytes;
    made.addresses.push_back(made.arena.Allocate(bytes));
    if (!frame_.IsMapped({made.addresses.back(), bytes})) made.beyond += 1;
  }
  for (size_t i = 0; i < mine_.size(); ++i) {
    const Lifetime& lifetime = lifetimes_[Index(mine_[i])];
    const bool moved = made.addresses[i] != placement_.AddressOf(mine_[i]);
    if (lifetime.leaves && moved) made.conflicts += ConflictsOf(lifetime, made.addresses[i], next);
  }
  return made;
}

// Later lifetimes, `next` and those behind it, whose places a lifetime takes.
int64_t Search::ConflictsOf(const Lifetime& lifetime, int64_t address, int32_t next) const {
  const int64_t end = address + lifetime.bytes;
  const auto overlaps = [&](size_t index) {
    const int64_t place = placement_.AddressOf(static_cast<int32_t>(index));
    return place < end && place + lifetimes_[index].bytes > address;
  };
  int64_t conflicts = 0;
  const int32_t last = std::max(lifetime.end, lifetime.again);
  // Lifetimes are in the order of their beginnings.
  for (size_t index = Index(next); index < lifetimes_.size() && lifetimes_[index].begin < last;
       ++index) {
    conflicts += overlaps(index) ? 1 : 0;
  }
  for (const int32_t carried : lifetimes_.carried()) {
    const Lifetime& other = lifetimes_[Index(carried)];
    const bool is_counted = carried < next || other.begin < last;
    if (!is_counted && lifetime.begin < other.again) conflicts += overlaps(Index(carried)) ? 1 : 0;
  }
  return conflicts;
}

// The group with what is open to its requests.
Steered Search::SteeredOf(const Part& part, Divided divided) const {
  Steered steered{part.steers, {}, {}, std::move(divided)};
  for (const int32_t lifetime : part.frees) steered.frees.push_back(IntervalOf(lifetime));
  for (const Event& event : part.events) {
    steered.requests.push_back({event.begins, IntervalOf(event.lifetime)});
  }
  return steered;
}

}  // namespace

Result<std::optional<Steering>> Steer(const Heap& heap, const Requests& requests,
                                      const SteeringOptions& options, const Progress& progress) {
  if (!heap.expandable) return std::optional<Steering>();
  OOC_ASSIGN(const Frame frame, Frame::Make(heap, requests, options.limit));
  if (frame.lifetimes().size() == 0 || !frame.IsPossible()) return std::optional<Steering>();
  std::vector<Steering> found(static_cast<size_t>(kWalks));
  const auto walk = [&](int64_t number, Deadline* deadline) -> Result<bool> {
    Steering& made = found[static_cast<size_t>(number)];
    const uint64_t seed = kWalks * options.seed + static_cast<uint64_t>(number);
    if (!Search(frame, seed, deadline).Run(&made.acts)) return false;
    return frame.Check(&made);
  };
  OOC_ASSIGN(const auto first, FirstOf(kWalks, options.seconds, progress, walk));
  if (!first) return std::optional<Steering>();
  return std::optional<Steering>(std::move(found[static_cast<size_t>(*first)]));
}

}  // namespace oocdnn::heap
