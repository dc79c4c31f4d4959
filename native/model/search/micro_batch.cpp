// An unbounded knapsack in which choices are admitted one by one, those of the least workspace
// first: whenever the whole batch gets faster by one of them, that is the next Pareto point. A
// choice that one already has to be as fast as parts of what was admitted before it changes
// nothing, so that most are dealt with in one comparison.
#include "model/search/micro_batch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

using Choices = std::vector<MicroBatch>;

class Divider {
 public:
  Divider(const Choices& choices, int64_t batch);

  // Whether the batch is now faster.
  bool Admit(int64_t index);
  // The fastest division by what was admitted; needs an Admit that was true.
  [[nodiscard]] Division Best() const;

 private:
  [[nodiscard]] const MicroBatch& choice(int64_t index) const { return choices_[index]; }
  // What is left of `samples` after one part.
  [[nodiscard]] int64_t Rest(int64_t samples, int64_t index) const {
    return std::max<int64_t>(samples - choice(index).samples, 0);
  }
  [[nodiscard]] std::vector<int64_t> Picks() const;

  const Choices& choices_;
  int64_t batch_;
  // By number of samples: the least seconds, and the choice of one part that reaches them.
  std::vector<double> seconds_;
  std::vector<int64_t> pick_;
};

Divider::Divider(const Choices& choices, int64_t batch)
    : choices_(choices),
      batch_(batch),
      seconds_(batch + 1, std::numeric_limits<double>::infinity()),
      pick_(batch + 1, 0) {
  seconds_[0] = 0.0;
}

bool Divider::Admit(int64_t index) {
  const MicroBatch& added = choice(index);
  if (added.seconds >= seconds_[std::min(added.samples, batch_)]) return false;
  const double before = seconds_.back();
  for (int64_t n = 1; n <= batch_; ++n) {
    const double seconds = seconds_[Rest(n, index)] + added.seconds;
    if (seconds >= seconds_[n]) continue;
    seconds_[n] = seconds;
    pick_[n] = index;
  }
  return seconds_.back() < before;
}

// The choice of each part, those of most samples first.
std::vector<int64_t> Divider::Picks() const {
  std::vector<int64_t> picks;
  for (int64_t left = batch_; left > 0; left = Rest(left, picks.back())) {
    picks.push_back(pick_[left]);
  }
  std::sort(picks.begin(), picks.end(), [&](int64_t a, int64_t b) {
    return std::tuple(-choice(a).samples, a) < std::tuple(-choice(b).samples, b);
  });
  return picks;
}

Division Divider::Best() const {
  Division division;
  auto& all = division.parts;
  for (const int64_t index : Picks()) {
    if (all.empty() || all.back().choice != index) all.push_back({index, 0});
    ++all.back().count;
  }
  for (const Parts& parts : all) {
    const MicroBatch& used = choice(parts.choice);
    division.seconds += static_cast<double>(parts.count) * used.seconds;
    division.workspace_bytes = std::max(division.workspace_bytes, used.workspace_bytes);
  }
  return division;
}

// `front` has the least bytes first. One of equal bytes that is faster replaces the last.
void Append(Division division, std::vector<Division>* front) {
  if (!front->empty() && division.seconds >= front->back().seconds) return;
  while (!front->empty() && front->back().workspace_bytes >= division.workspace_bytes) {
    front->pop_back();
  }
  front->push_back(std::move(division));
}

// Least workspace first; of equal ones those of most samples, which make the fewest parts.
std::vector<int64_t> ByWorkspace(const Choices& choices) {
  std::vector<int64_t> order(choices.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const MicroBatch& first = choices[a];
    const MicroBatch& second = choices[b];
    return std::tuple(first.workspace_bytes, -first.samples) <
           std::tuple(second.workspace_bytes, -second.samples);
  });
  return order;
}

Status CheckChoice(const MicroBatch& choice, size_t index) {
  if (choice.samples > 0 && std::isfinite(choice.seconds) && choice.seconds >= 0.0 &&
      choice.workspace_bytes >= 0) {
    return {};
  }
  return Error(Code::kInvalidProblem,
               "choice %zu of the micro-batches has %lld samples, %g seconds and %lld bytes of "
               "workspace; samples are at least 1, seconds and bytes finite and at least 0",
               index, static_cast<long long>(choice.samples), choice.seconds,
               static_cast<long long>(choice.workspace_bytes));
}

Status CheckBatch(int64_t batch) {
  if (batch < 0) {
    return Error(Code::kInvalidProblem, "a batch cannot have %lld samples",
                 static_cast<long long>(batch));
  }
  if (batch > kMostSamples) {
    return Error(Code::kUnsupported,
                 "a batch of %lld samples is not divided, %lld are the most; divide a part of it",
                 static_cast<long long>(batch), static_cast<long long>(kMostSamples));
  }
  return {};
}

Status CheckChoices(const Choices& choices, int64_t batch) {
  if (choices.empty()) {
    return Error(Code::kInvalidProblem, "there is no micro-batch to choose; measure at least one");
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    OOC_TRY(CheckChoice(choices[i], i));
    if (std::isfinite(choices[i].seconds * static_cast<double>(batch))) continue;
    return Error(Code::kInvalidProblem,
                 "choice %zu of the micro-batches takes %g seconds, which %lld samples make more "
                 "than a number holds",
                 i, choices[i].seconds, static_cast<long long>(batch));
  }
  return {};
}

}  // namespace

Result<std::vector<int64_t>> MicroBatchSizes(BatchPolicy policy, int64_t batch) {
  OOC_TRY(CheckBatch(batch));
  std::vector<int64_t> sizes;
  if (policy != BatchPolicy::kUndivided) {
    for (int64_t size = 1; size < batch; size += policy == BatchPolicy::kAll ? 1 : size) {
      sizes.push_back(size);
    }
  }
  if (batch > 0) sizes.push_back(batch);
  return sizes;
}

Result<std::vector<Division>> ParetoDivisions(const Choices& choices, int64_t batch) {
  OOC_TRY(CheckBatch(batch));
  OOC_TRY(CheckChoices(choices, batch));
  if (batch == 0) return std::vector<Division>(1);
  Divider divider(choices, batch);
  std::vector<Division> front;
  for (const int64_t index : ByWorkspace(choices)) {
    if (divider.Admit(index)) Append(divider.Best(), &front);
  }
  std::reverse(front.begin(), front.end());
  return front;
}

Result<std::vector<Division>> EvenDivisions(const Choices& choices, int64_t batch) {
  OOC_TRY(CheckBatch(batch));
  OOC_TRY(CheckChoices(choices, batch));
  if (batch == 0) return std::vector<Division>(1);
  std::vector<Division> front;
  for (const int64_t index : ByWorkspace(choices)) {
    const MicroBatch& one = choices[index];
    const int64_t count = CeilDiv(batch, one.samples);
    Append({static_cast<double>(count) * one.seconds, one.workspace_bytes, {{index, count}}},
           &front);
  }
  std::reverse(front.begin(), front.end());
  return front;
}

Result<Division> DivideBatch(const Choices& choices, int64_t batch, int64_t limit) {
  OOC_ASSIGN(std::vector<Division> front, ParetoDivisions(choices, batch));
  for (Division& division : front) {
    if (division.workspace_bytes <= limit) return std::move(division);
  }
  const int64_t least = front.back().workspace_bytes;
  return Error(Code::kOutOfMemory,
               "no division of %lld samples fits a workspace of %lld bytes; allow %lld bytes, the "
               "least that works, or measure smaller micro-batches",
               static_cast<long long>(batch), static_cast<long long>(limit),
               static_cast<long long>(least))
      .WithDetail(least);
}

}  // namespace oocdnn
