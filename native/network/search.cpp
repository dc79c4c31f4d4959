// Simulated annealing over the choices of a step.
#include "network/search.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/random.hpp"

namespace oocdnn::network {
namespace {

constexpr double kPrice = 6.0;        // for a byte above the limit: times of its copy
constexpr double kRounding = 1e-9;    // of sums of seconds
constexpr int64_t kNear = 14;         // saved tensors between two that are changed together
constexpr size_t kLongest = 12;       // run of alike tensors that are changed together
constexpr int64_t kBetweenLooks = 8;  // trials between two looks at the clock
constexpr auto kBetweenTold = std::chrono::milliseconds(5);

template <class T>
const T& AnyOf(const std::vector<T>& all, Random* random) {
  return all[random->Below(all.size())];
}

// Exponentially distributed with mean 1, to within a few percent, without a logarithm, whose last
// bit differs between machines.
double Exponential(Random* random) {
  constexpr double kLog2 = 0.6931471805599453, kUnit = 1.0 / 9007199254740992.0;
  const uint64_t bits = random->Next() | (uint64_t{1} << 63U);
  const double fraction = static_cast<double>(random->Next() >> 11U) * kUnit;
  return kLog2 * (static_cast<double>(__builtin_ctzll(bits)) + fraction);
}

// The order of schedules: bytes above the limit, then seconds.
using Rank = std::pair<int64_t, double>;

class Search {
 public:
  Search(Scheduler* scheduler, const SearchOptions& options, std::vector<Choice>* choices);

  Status Run(const Progress& progress);

 private:
  struct Change {
    size_t index;
    Choice before;
  };

  void FindAlike();
  void Set(size_t index, Choice choice);
  void SetAny(size_t index) { Set(index, AnyOf(ways_[index], &random_)); }
  void Propose();
  void Draw();
  void FindReaders();
  void Settle(size_t index);
  void Unread(size_t index);
  void ChangeTwo();
  void Exchange();
  void ChangeRun();
  void ChangeSegment();
  void ChangeChain();
  void Undo();
  bool Accept(double warmth);
  [[nodiscard]] double CostOf(const Totals& totals) const;
  [[nodiscard]] Rank RankOf(const Totals& totals) const;

  Scheduler* const scheduler_;
  const SearchOptions options_;
  Random random_;
  const Price price_;
  std::vector<std::vector<Choice>> ways_;   // of each saved tensor
  std::vector<size_t> open_;                // those with more than one
  std::vector<std::vector<size_t>> alike_;  // groups of saved tensors with equal bytes and ways
  std::vector<size_t> group_, place_;       // of each open one, and its place in the group
  std::vector<std::vector<std::pair<size_t, Choice>>>
      readers_;  // of forms that recipes cannot read
  std::vector<Choice> present_;
  double cost_ = 0.0;
  double computing_ = 0.0, computing_before_ = 0.0;  // seconds of recipes and squeezing
  std::vector<Choice>* const best_;
  Rank rank_;
  std::vector<Change> changes_;
};

Search::Search(Scheduler* scheduler, const SearchOptions& options, std::vector<Choice>* choices)
    : scheduler_(scheduler),
      options_(options),
      random_(options.seed),
      price_{kPrice / scheduler->step().link.from_host},
      present_(*choices),
      best_(choices) {
  const Step& step = scheduler_->step();
  for (const Saved& one : step.saved) {
    if (ways_.emplace_back(OptionsOf(step, one)).size() > 1) open_.push_back(ways_.size() - 1);
  }
  FindAlike();
  FindReaders();
  for (size_t index = 0; index < present_.size(); ++index) Settle(index);
  const Totals& totals = scheduler_->Run(options_.limit, present_);
  computing_ = totals.recomputing;
  cost_ = CostOf(totals);
  rank_ = RankOf(totals);
}

void Search::FindAlike() {
  const std::vector<Saved>& saved = scheduler_->step().saved;
  group_.resize(saved.size());
  place_.resize(saved.size());
  std::map<std::tuple<int64_t, int64_t, size_t>, size_t> numbers;
  for (const size_t index : open_) {
    const Saved& one = saved[index];
    const auto key = std::make_tuple(one.bytes, one.squeezed_bytes, ways_[index].size());
    const size_t group = numbers.emplace(key, numbers.size()).first->second;
    if (group == alike_.size()) alike_.emplace_back();
    group_[index] = group;
    place_[index] = alike_[group].size();
    alike_[group].push_back(index);
  }
}

void Search::FindReaders() {
  const std::vector<Saved>& saved = scheduler_->step().saved;
  readers_.resize(saved.size());
  for (size_t index = 0; index < saved.size(); ++index) {
    for (size_t number = 0; number < saved[index].recipes.size(); ++number) {
      for (const int64_t input : saved[index].recipes[number].inputs) {
        const auto source = static_cast<size_t>(input);
        if (IsPartial(saved[source], kSqueeze))
          readers_[source].emplace_back(index, kRecipe + static_cast<Choice>(number));
      }
    }
  }
}

double Search::CostOf(const Totals& totals) const {
  return price_.Of(totals.seconds, totals.excess_bytes);
}

Rank Search::RankOf(const Totals& totals) const {
  return {std::max<int64_t>(totals.peak_bytes - options_.limit, 0), totals.seconds};
}

void Search::Set(size_t index, Choice choice) {
  if (present_[index] == choice) return;
  changes_.push_back({index, present_[index]});
  computing_ +=
      scheduler_->SecondsOf(index, choice) - scheduler_->SecondsOf(index, present_[index]);
  present_[index] = choice;
}

void Search::Undo() {
  for (size_t i = changes_.size(); i-- > 0;) present_[changes_[i].index] = changes_[i].before;
  computing_ = computing_before_;
}

// Recipes only read tensors whose form they can read. Of two conflicting changes the later one
// decides.
void Search::Propose() {
  changes_.clear();
  computing_before_ = computing_;
  Draw();
  const size_t count = changes_.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t index = changes_[i].index;
    if (IsPartial(scheduler_->step().saved[index], present_[index])) Unread(index);
    Settle(index);
  }
}

// Inputs of its recipe that are in forms that it cannot read are copied.
void Search::Settle(size_t index) {
  if (present_[index] < kRecipe) return;
  const std::vector<Saved>& saved = scheduler_->step().saved;
  for (const int64_t input :
       saved[index].recipes[static_cast<size_t>(present_[index] - kRecipe)].inputs) {
    const auto source = static_cast<size_t>(input);
    if (IsPartial(saved[source], present_[source])) Set(source, kSwap);
  }
}

// What recipes compute from the tensor is kept or copied.
void Search::Unread(size_t index) {
  for (const auto& [reader, choice] : readers_[index]) {
    if (present_[reader] == choice) Set(reader, random_.Chance(50) ? kKeep : kSwap);
  }
}

void Search::Draw() {
  switch (random_.Below(10)) {
    case 0:
    case 1:
    case 2: return SetAny(AnyOf(open_, &random_));
    case 3:
    case 4:
    case 5: return ChangeTwo();
    case 6:
    case 7: return Exchange();
    case 8: return random_.Chance(50) ? ChangeRun() : ChangeSegment();
    default: return ChangeChain();
  }
}

// Two tensors, near each other as often as not.
void Search::ChangeTwo() {
  const size_t first = random_.Below(open_.size());
  size_t second = random_.Below(open_.size());
  if (random_.Chance(50)) {
    const auto near = static_cast<int64_t>(first + random_.Below(2 * kNear + 1)) - kNear;
    const auto last = static_cast<int64_t>(open_.size()) - 1;
    second = static_cast<size_t>(std::clamp<int64_t>(near, 0, last));
  }
  SetAny(open_[first]);
  SetAny(open_[second]);
}

// The policies of two alike tensors.
void Search::Exchange() {
  const size_t first = AnyOf(open_, &random_);
  const size_t second = AnyOf(alike_[group_[first]], &random_);
  const auto number_of = [this](size_t index) {
    const std::vector<Choice>& ways = ways_[index];
    const auto at = std::find(ways.begin(), ways.end(), present_[index]);
    return at == ways.end() ? 0 : static_cast<size_t>(at - ways.begin());
  };
  const size_t of_first = number_of(first), of_second = number_of(second);
  Set(first, ways_[first][of_second]);
  Set(second, ways_[second][of_first]);
}

// One policy for some alike tensors that follow one another.
void Search::ChangeRun() {
  const size_t first = AnyOf(open_, &random_);
  const std::vector<size_t>& group = alike_[group_[first]];
  const size_t way = random_.Below(ways_[first].size());
  const size_t begin = place_[first], length = 2 + random_.Below(kLongest - 1);
  const size_t end = std::min(begin + length, group.size());
  for (size_t place = begin; place < end; ++place) Set(group[place], ways_[group[place]][way]);
}

// Neighbours: all kept, all copied, or all computed where they can be.
void Search::ChangeSegment() {
  const size_t begin = random_.Below(open_.size()), length = 2 + random_.Below(kLongest - 1);
  const size_t end = std::min(begin + length, open_.size());
  const auto policy = static_cast<Choice>(random_.Below(3));
  for (size_t place = begin; place < end; ++place) {
    const std::vector<Choice>& ways = ways_[open_[place]];
    const Choice computed = ways.back() >= kRecipe ? ways[random_.Below(ways.size())] : kSwap;
    Set(open_[place], policy == kSqueeze ? computed : policy);
  }
}

// A tensor, and what one of its recipes reads: one side computed, the other kept or copied.
void Search::ChangeChain() {
  const size_t index = AnyOf(open_, &random_);
  const std::vector<Recipe>& recipes = scheduler_->step().saved[index].recipes;
  if (recipes.empty() || ways_[index].back() < kRecipe) return SetAny(index);
  const Choice present = present_[index], any = AnyOf(ways_[index], &random_);
  const Choice recipe = present >= kRecipe ? present : any >= kRecipe ? any : ways_[index].back();
  const bool take = present < kRecipe;
  Set(index, take ? recipe : (random_.Chance(50) ? kKeep : kSwap));
  for (const int64_t input : recipes[static_cast<size_t>(recipe - kRecipe)].inputs) {
    const auto source = static_cast<size_t>(input);
    if (ways_[source].size() == 1) continue;
    if (take) {
      if (present_[source] >= kRecipe || random_.Chance(50))
        Set(source, random_.Chance(50) ? kKeep : kSwap);
    } else {
      SetAny(source);
    }
  }
}

// Runs what is proposed; takes it where it is not worse than at present by more than a random part
// of the warmth, or the best so far.
bool Search::Accept(double warmth) {
  const double most = cost_ + warmth * Exponential(&random_);
  const double cutoff = rank_.first == 0 ? std::max(most, rank_.second) : most;
  if (scheduler_->LeastSeconds(computing_) > (1.0 + kRounding) * cutoff) return false;
  if (!scheduler_->RunWithin(options_.limit, present_, {cutoff, price_})) return false;
  const Totals& totals = scheduler_->totals();
  const double cost = CostOf(totals);
  if (const Rank rank = RankOf(totals); rank < rank_) {
    rank_ = rank;
    *best_ = present_;
  } else if (cost > most) {
    return false;
  }
  cost_ = cost;
  return true;
}

Status Search::Run(const Progress& progress) {
  using Clock = std::chrono::steady_clock;
  if (open_.empty()) return {};
  const auto began = Clock::now();
  auto told = began;
  for (int64_t trial = 0; trial < options_.trials; ++trial) {
    if (trial % kBetweenLooks == 0) {
      const auto now = Clock::now();
      if (std::chrono::duration<double>(now - began).count() >= options_.seconds) return {};
      if (now - told >= kBetweenTold) {
        told = now;
        if (!progress(trial, options_.trials)) {
          return Error(Code::kInterrupted, "the search was interrupted after %lld trials",
                       static_cast<long long>(trial));
        }
      }
    }
    const double left = 1.0 - static_cast<double>(trial) / static_cast<double>(options_.trials);
    Propose();
    if (changes_.empty()) continue;
    if (!Accept(options_.warmth * left * left * left)) Undo();
  }
  return {};
}

}  // namespace

Status Improve(Scheduler* scheduler, const SearchOptions& options, const Progress& progress,
               std::vector<Choice>* choices) {
  return Search(scheduler, options, choices).Run(progress);
}

}  // namespace oocdnn::network
