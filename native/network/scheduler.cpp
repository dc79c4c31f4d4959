// One walk over the step for each schedule. Times are those of a device that waits only where it
// has to.
#include "network/scheduler.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace oocdnn::network {
namespace {

constexpr int32_t kEnd = -1;  // of a list
constexpr double kNotLeaving = -1.0;
constexpr Cutoff kNoCutoff{std::numeric_limits<double>::infinity(), {}};

size_t Index(int64_t number) { return static_cast<size_t>(number); }

}  // namespace

Scheduler::Scheduler(Step step) : step_(std::move(step)) {
  const size_t positions = step_.operations.size(), count = step_.saved.size();
  FindStarts();
  steps_.assign(positions + 1, 0);
  for (const Saved& one : step_.saved) {
    first_uses_.push_back(one.first_use);
    steps_[Index(one.produced)] += one.bytes;
    steps_[Index(one.last_use + 1)] -= one.bytes;
  }
  int64_t bytes = 0;
  for (size_t position = 0; position < positions; ++position) {
    bytes += steps_[position];
    kept_bytes_.push_back(bytes + step_.operations[position].fixed_bytes);
  }
  by_ended_.resize(count);
  std::iota(by_ended_.begin(), by_ended_.end(), 0);
  std::stable_sort(by_ended_.begin(), by_ended_.end(), [this](int32_t a, int32_t b) {
    return step_.saved[Index(a)].last_forward_use < step_.saved[Index(b)].last_forward_use;
  });
  choices_.resize(count);
  needed_.resize(positions);
  next_needed_.resize(count);
  temporary_.resize(positions);
  movements_.resize(count);
  waits_.resize(count);
  bytes_.Resize(positions);
  leaving_.resize(count);
  ready_.reserve(count);
  arrivals_.resize(count);
  queue_.reserve(count);
}

// The step where everything is kept: the walk without copies and recipes.
void Scheduler::FindStarts() {
  std::vector<double> device;  // seconds of the operations before each
  double host = 0.0, now = 0.0;
  for (const Operation& operation : step_.operations) {
    device.push_back(seconds_);
    starts_.push_back(now);
    host += operation.host;
    seconds_ += operation.seconds;
    now = std::max(now + operation.seconds, host);
  }
  starts_.push_back(now);
  times_.resize(device.size());
  double rest = 0.0;
  for (size_t position = device.size(); position-- > 0;) {
    const Operation& operation = step_.operations[position];
    times_[position] = {operation.seconds, operation.host, rest};
    rest = std::max(seconds_ - device[position], operation.host + rest);
  }
}

double Scheduler::SecondsOf(size_t index, Choice choice) const {
  const Saved& one = step_.saved[index];
  if (choice >= kRecipe) return one.recipes[Index(choice - kRecipe)].seconds;
  return choice == kSqueeze ? one.squeeze_seconds : 0.0;
}

const Totals& Scheduler::Run(int64_t limit, std::span<const Choice> choices) {
  RunWithin(limit, choices, kNoCutoff);
  return totals_;
}

bool Scheduler::RunWithin(int64_t limit, std::span<const Choice> choices, const Cutoff& cutoff) {
  Prepare(limit, choices);
  FindNeeds();
  least_seconds_ = seconds_ + BytesWithoutCopies();
  if (Passes(cutoff, bytes_.Most() - limit_, plain_seconds())) return false;
  QueueFetches();
  return Walk(cutoff);
}

void Scheduler::Prepare(int64_t limit, std::span<const Choice> choices) {
  limit_ = limit;
  std::copy(choices.begin(), choices.end(), choices_.begin());
  std::fill(needed_.begin(), needed_.end(), kEnd);
  std::fill(steps_.begin(), steps_.end(), 0);
  std::fill(temporary_.begin(), temporary_.end(), 0);
  std::fill(movements_.begin(), movements_.end(), Movement{});
  std::fill(waits_.begin(), waits_.end(), 0.0);
  std::fill(leaving_.begin(), leaving_.end(), kNotLeaving);
  totals_ = {};
  now_ = host_ = waited_ = out_free_ = in_free_ = 0.0;
  leaving_count_ = leaving_bytes_ = ready_bytes_ = excess_ = 0;
  ready_.clear();
  queue_.clear();
  queue_begin_ = blocked_ = next_ended_ = next_produced_ = 0;
}

// A tensor that another is computed from is needed where that one is, and in full.
void Scheduler::FindNeeds() {
  needs_ = first_uses_;
  for (size_t index = needs_.size(); index-- > 0;) {
    if (choices_[index] == kKeep) continue;
    const int64_t need = needs_[index];
    if (choices_[index] >= kRecipe) {
      for (const int64_t input :
           step_.saved[index].recipes[Index(choices_[index] - kRecipe)].inputs) {
        needs_[Index(input)] = std::min(needs_[Index(input)], need);
        Choice& read = choices_[Index(input)];
        if (IsPartial(step_.saved[Index(input)], read)) read = kSwap;
      }
    }
    next_needed_[index] = needed_[Index(need)];
    needed_[Index(need)] = static_cast<int32_t>(index);
  }
}

// Bytes where copies take no time: what is not kept is absent from its last use in forward to its
// need. Returns the seconds that the choices compute.
double Scheduler::BytesWithoutCopies() {
  double computing = 0.0;
  for (size_t index = 0; index < choices_.size(); ++index) {
    const Choice choice = choices_[index];
    if (choice == kKeep) continue;
    const Saved& one = step_.saved[index];
    const int64_t need = needs_[index], ended = one.last_forward_use + 1;
    steps_[Index(ended)] -= one.bytes;
    steps_[Index(need)] += one.bytes;
    if (choice == kSwap) continue;
    movements_[index] = {ended, need, need};
    computing += SecondsOf(index, choice);
    if (choice == kSqueeze) {
      steps_[Index(one.produced + 1)] += one.squeezed_bytes;
      steps_[Index(one.last_use + 1)] -= one.squeezed_bytes;
    } else {
      const Operation& operation = step_.operations[Index(need)];
      const int64_t temporary = one.recipes[Index(choice - kRecipe)].temporary_bytes;
      int64_t& most = temporary_[Index(need)];
      most = std::max(most, operation.begin_bytes + temporary - operation.fixed_bytes);
    }
  }
  int64_t change = 0;
  for (size_t position = 0; position < kept_bytes_.size(); ++position) {
    change += steps_[position];
    bytes_.Set(position, kept_bytes_[position] + change + temporary_[position]);
  }
  bytes_.Build();
  return computing;
}

// Swapped tensors in the order of their need, each with the last position at which its copy may
// start without a wait.
void Scheduler::QueueFetches() {
  for (const int32_t first : needed_) {
    for (int32_t index = first; index != kEnd; index = next_needed_[Index(index)]) {
      if (choices_[Index(index)] == kSwap) queue_.emplace_back(index, 0);
    }
  }
  double latest = std::numeric_limits<double>::infinity();
  auto after = starts_.end();  // no start behind it is at or before `latest`
  for (size_t place = queue_.size(); place-- > 0;) {
    const size_t index = Index(queue_[place].first);
    const double seconds =
        static_cast<double>(step_.saved[index].bytes) / step_.link.from_host + step_.link.latency;
    latest = std::min(starts_[Index(needs_[index])], latest) - seconds;
    after = std::upper_bound(starts_.begin(), after, latest);
    const auto position = static_cast<int32_t>(after - starts_.begin()) - 1;
    queue_[place].second = std::max(position, 0);
  }
}

// True where no schedule that goes on from here, in `least` seconds or more, and passes the limit
// by as much, costs as little.
bool Scheduler::Passes(const Cutoff& cutoff, int64_t excess, double least) const {
  const double seconds = std::max(least_seconds_ + waited_, least);
  return cutoff.price.Of(seconds, excess) > cutoff.cost;
}

bool Scheduler::Walk(const Cutoff& cutoff) {
  for (size_t position = 0; position < step_.operations.size(); ++position) {
    const bool needed = needed_[position] != kEnd;
    EndForwardUse(position);
    if (needed && leaving_count_ > 0) KeepUncopied(position);
    if (!ready_.empty()) Release(position);
    if (queue_begin_ < queue_.size()) Fetch(position);
    if (needed) Complete(position);
    const Times& times = times_[position];
    Enqueue(times.seconds, times.host);
    Produce(position);
    CountExcess(position);
    if (Passes(cutoff, totals_.excess_bytes, host_ + times.rest)) return false;
  }
  totals_.seconds = now_;
  return true;
}

// Adds the rise of the excess since the last position, so that each peak counts once.
void Scheduler::CountExcess(size_t position) {
  const int64_t bytes = bytes_.At(position);
  totals_.peak_bytes = std::max(totals_.peak_bytes, bytes);
  const int64_t excess = std::max<int64_t>(bytes - limit_, 0);
  totals_.excess_bytes += std::max<int64_t>(excess - excess_, 0);
  excess_ = excess;
}

void Scheduler::EndForwardUse(size_t position) {
  for (; next_ended_ < by_ended_.size(); ++next_ended_) {
    const int32_t index = by_ended_[next_ended_];
    const Saved& one = step_.saved[Index(index)];
    if (Index(one.last_forward_use) + 1 > position) return;
    if (choices_[Index(index)] != kSwap) continue;
    ready_.emplace_back(leaving_[Index(index)], index);
    std::push_heap(ready_.begin(), ready_.end(), std::greater<>());
    ready_bytes_ += one.bytes;
  }
}

// Tensors that are needed before their copy to the host ends are kept.
void Scheduler::KeepUncopied(size_t position) {
  for (int32_t index = needed_[position]; index != kEnd; index = next_needed_[Index(index)]) {
    if (leaving_[Index(index)] == kNotLeaving) continue;
    choices_[Index(index)] = kKeep;
    Drop(Index(index));
  }
}

// The copy is not waited for any more.
void Scheduler::Drop(size_t index) {
  leaving_[index] = kNotLeaving;
  leaving_count_ -= 1;
  leaving_bytes_ -= step_.saved[index].bytes;
  ready_bytes_ -= step_.saved[index].bytes;
}

// Frees what has been copied away; waits for copies, first ones first, where the limit asks; counts
// what is still there.
void Scheduler::Release(size_t position) {
  const int64_t free = limit_ - bytes_.At(position);
  while (!ready_.empty()) {
    const auto [end, number] = ready_.front();
    const size_t index = Index(number);
    if (leaving_[index] != kNotLeaving) {
      if (end > now_ && ready_bytes_ <= free) break;
      WaitFor(index, end);
      Drop(index);
      movements_[index] = {static_cast<int64_t>(position), needs_[index], needs_[index]};
    }
    std::pop_heap(ready_.begin(), ready_.end(), std::greater<>());
    ready_.pop_back();
  }
  if (ready_bytes_ != 0) bytes_.Add(position, position + 1, ready_bytes_);
}

// Starts the copies whose time has come, in order, while they fit up to their need.
void Scheduler::Fetch(size_t position) {
  for (; queue_begin_ < queue_.size(); ++queue_begin_) {
    const auto [index, latest] = queue_[queue_begin_];
    if (choices_[Index(index)] == kKeep) continue;
    if (!FetchOne(position, Index(index), Index(latest))) return;
  }
}

bool Scheduler::FetchOne(size_t position, size_t index, size_t latest) {
  const size_t need = Index(needs_[index]);
  const int64_t bytes = step_.saved[index].bytes;
  if (need > position && std::max(latest, blocked_) > position) return false;
  if (movements_[index].release < 0) return false;  // not copied away yet
  if (position < need) {
    const size_t full = bytes_.LastAbove(position, need, limit_ - bytes - leaving_bytes_);
    if (full != need) {
      if (leaving_count_ == 0) blocked_ = full + 1;
      return false;
    }
    bytes_.Add(position, need, bytes);
  }
  movements_[index].fetch = static_cast<int64_t>(position);
  arrivals_[index] = in_free_ = Copied(in_free_, bytes, step_.link.from_host);
  return true;
}

// Everything that the next operation reads: copies are waited for, recipes run.
void Scheduler::Complete(size_t position) {
  for (int32_t number = needed_[position]; number != kEnd; number = next_needed_[Index(number)]) {
    const size_t index = Index(number);
    const Choice choice = choices_[index];
    if (choice == kSwap) {
      WaitFor(index, arrivals_[index]);
    } else if (choice == kSqueeze) {
      Compute(step_.saved[index].squeeze_seconds / 2, step_.saved[index].squeeze_host / 2);
    } else if (choice != kKeep) {
      const Recipe& recipe = step_.saved[index].recipes[Index(choice - kRecipe)];
      Compute(recipe.seconds, recipe.host);
    }
  }
}

// After the operation that writes tensors: the copy away begins, or the squeezing runs.
void Scheduler::Produce(size_t position) {
  for (; next_produced_ < step_.saved.size(); ++next_produced_) {
    const Saved& one = step_.saved[next_produced_];
    if (Index(one.produced) > position) return;
    const Choice choice = choices_[next_produced_];
    if (choice == kSwap) {
      leaving_[next_produced_] = out_free_ = Copied(out_free_, one.bytes, step_.link.to_host);
      leaving_count_ += 1;
      leaving_bytes_ += one.bytes;
    } else if (choice == kSqueeze) {
      Compute(one.squeeze_seconds / 2, one.squeeze_host / 2);
    }
  }
}

// The end of a copy that the host starts here, where the device is, behind the one that ends at
// `free`.
double Scheduler::Copied(double free, int64_t bytes, double rate) {
  Enqueue(0.0, step_.link.host);
  return std::max(now_, free) + step_.link.latency + static_cast<double>(bytes) / rate;
}

// The device begins where the host is, or later, and does not end before the host has enqueued all.
void Scheduler::Enqueue(double seconds, double host) {
  host_ += host;
  now_ += seconds;
  if (host_ > now_) {
    waited_ += host_ - now_;
    totals_.late += host_ - now_;
    now_ = host_;
  }
}

void Scheduler::Compute(double seconds, double host) {
  Enqueue(seconds, host);
  totals_.recomputing += seconds;
}

void Scheduler::WaitFor(size_t index, double moment) {
  if (moment > now_) {
    waited_ += moment - now_;
    totals_.waiting += moment - now_;
    waits_[index] += moment - now_;
    now_ = moment;
  }
}

}  // namespace oocdnn::network
