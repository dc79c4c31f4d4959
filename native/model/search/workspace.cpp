// A multiple-choice knapsack by dynamic programming over partial divisions, kernel by kernel. Not a
// table over bytes, which would be exact at some grain only: a list of states of which none is at
// least as good as another in both bytes and seconds. States that the relaxation of the remaining
// kernels shows to be no better than the best division known are dropped; each state's own rounded
// relaxation is a division, too, and may become that best.
#include "model/search/workspace.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/checked.hpp"
#include "model/search/relaxation.hpp"

namespace oocdnn {
namespace {

// Rounding errors of sums stay far below this share.
constexpr double kEqual = 1e-12;

// A division of the kernels so far.
struct State {
  int64_t bytes = 0;  // beyond the least of each kernel
  double seconds = 0.0;
  double least = 0.0;  // seconds of any division that goes on from here
  int32_t parent = 0;  // the state of one kernel less
  int32_t option = 0;  // of the last kernel, in its front
};
using States = std::vector<State>;

bool FewerBytes(const State& a, const State& b) {
  return std::tie(a.bytes, a.seconds) < std::tie(b.bytes, b.seconds);
}

// Drops what is no faster than something before it; `items` are in order of bytes.
template <class Item, class Seconds>
void KeepFaster(const Seconds& seconds, std::vector<Item>* items) {
  double fastest = std::numeric_limits<double>::infinity();
  std::erase_if(*items, [&](const Item& item) {
    if (seconds(item) >= fastest) return true;
    fastest = seconds(item);
    return false;
  });
}

class Knapsack {
 public:
  Knapsack(std::vector<WorkspaceOptions> fronts, int64_t bytes);

  // The option of each kernel, in its front.
  std::vector<int64_t> Solve();
  // Whether nothing that was trimmed away could have been faster than that.
  [[nodiscard]] bool proven() const { return IsNoBetter(lost_); }
  [[nodiscard]] double lost() const { return lost_; }

 private:
  void Extend(int64_t kernel);
  States Shifted(int64_t kernel, int64_t option);
  void Offer(const State& state, int64_t kernel, double seconds);
  void Trim(States* states);
  [[nodiscard]] bool IsNoBetter(double seconds) const {
    return seconds >= best_ - kEqual * std::abs(best_);
  }

  std::vector<WorkspaceOptions> fronts_;
  int64_t bytes_;
  Relaxation relaxation_;  // of the kernels that the states do not hold yet
  std::vector<States> stages_;
  double best_ = std::numeric_limits<double>::infinity();
  std::vector<int64_t> chosen_;                            // by the division that takes `best_`
  double lost_ = std::numeric_limits<double>::infinity();  // least of the states trimmed away
};

Knapsack::Knapsack(std::vector<WorkspaceOptions> fronts, int64_t bytes)
    : fronts_(std::move(fronts)), bytes_(bytes), relaxation_(fronts_), stages_(1, States(1)) {
  Offer(stages_[0][0], -1, relaxation_.At(bytes_).reached);
}

std::vector<int64_t> Knapsack::Solve() {
  for (size_t k = 0; k < fronts_.size(); ++k) Extend(static_cast<int64_t>(k));
  return chosen_;
}

void Knapsack::Extend(int64_t kernel) {
  relaxation_.Remove(kernel);
  States next, merged;
  for (size_t i = 0; i < fronts_[kernel].size(); ++i) {
    const States shifted = Shifted(kernel, static_cast<int64_t>(i));
    merged.clear();
    std::merge(next.begin(), next.end(), shifted.begin(), shifted.end(), std::back_inserter(merged),
               FewerBytes);
    KeepFaster([](const State& state) { return state.seconds; }, &merged);
    Trim(&merged);
    std::swap(next, merged);
  }
  std::erase_if(next, [&](const State& state) { return IsNoBetter(state.least); });
  stages_.push_back(std::move(next));
}

// The states of the last stage with one more kernel, those that fit and may lead to the best.
States Knapsack::Shifted(int64_t kernel, int64_t option) {
  const WorkspaceOption& added = fronts_[kernel][option];
  const int64_t more = added.workspace_bytes - fronts_[kernel][0].workspace_bytes;
  States shifted;
  const States& last = stages_.back();
  for (size_t i = 0; i < last.size() && last[i].bytes <= bytes_ - more; ++i) {
    State state{last[i].bytes + more, last[i].seconds + added.seconds, 0.0, static_cast<int32_t>(i),
                static_cast<int32_t>(option)};
    const Relaxation::Bounds rest = relaxation_.At(bytes_ - state.bytes);
    state.least = state.seconds + rest.least;
    if (IsNoBetter(state.least)) continue;
    Offer(state, kernel, state.seconds + rest.reached);
    shifted.push_back(state);
  }
  return shifted;
}

// Keeps the division that `state`, which ends with `kernel`, and the rounded relaxation make, where
// its seconds are fewer.
void Knapsack::Offer(const State& state, int64_t kernel, double seconds) {
  if (seconds >= best_) return;
  best_ = seconds;
  chosen_.assign(fronts_.size(), 0);
  relaxation_.Round(bytes_ - state.bytes, &chosen_);
  const State* at = &state;
  for (int64_t k = kernel; k >= 0; --k) {
    chosen_[k] = at->option;
    at = &stages_[k][at->parent];
  }
}

void Knapsack::Trim(States* states) {
  if (static_cast<int64_t>(states->size()) <= kMostStates) return;
  const auto promising = [](const State& a, const State& b) { return a.least < b.least; };
  const auto middle = states->begin() + kMostStates / 2;
  std::nth_element(states->begin(), middle, states->end(), promising);
  lost_ = std::min(lost_, middle->least);
  states->erase(middle, states->end());
  std::sort(states->begin(), states->end(), FewerBytes);
}

// The indices of the options of which none is at least as good as another, least bytes first.
std::vector<int64_t> ParetoOf(const WorkspaceOptions& options) {
  std::vector<int64_t> order(options.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::tie(options[a].workspace_bytes, options[a].seconds) <
           std::tie(options[b].workspace_bytes, options[b].seconds);
  });
  KeepFaster([&](int64_t option) { return options[option].seconds; }, &order);
  return order;
}

Status CheckOptions(const WorkspaceOptions& options, size_t kernel) {
  if (options.empty()) {
    return Error(Code::kInvalidProblem, "kernel %zu has no option; measure at least one", kernel);
  }
  for (const WorkspaceOption& option : options) {
    if (std::isfinite(option.seconds) && option.workspace_bytes >= 0) continue;
    return Error(Code::kInvalidProblem,
                 "kernel %zu has an option of %g seconds and %lld bytes of workspace; seconds are "
                 "finite and bytes at least 0",
                 kernel, option.seconds, static_cast<long long>(option.workspace_bytes));
  }
  return {};
}

struct Fronts {
  std::vector<WorkspaceOptions> options;
  std::vector<std::vector<int64_t>> indices;  // of those among all options of the kernel
  int64_t least = 0;                          // bytes with which all kernels run
};

Result<Fronts> FrontsOf(const std::vector<WorkspaceOptions>& kernels) {
  Fronts fronts;
  double most = 0.0;  // seconds of any division, whatever their sign
  for (size_t k = 0; k < kernels.size(); ++k) {
    OOC_TRY(CheckOptions(kernels[k], k));
    double slowest = 0.0;
    for (const WorkspaceOption& option : kernels[k]) {
      slowest = std::max(slowest, std::abs(option.seconds));
    }
    most += slowest;
    if (!std::isfinite(2.0 * most)) {  // nor do differences overflow
      return Error(Code::kInvalidProblem,
                   "the seconds of kernels 0 to %zu add up to more than a number holds", k);
    }
    WorkspaceOptions& front = fronts.options.emplace_back();
    for (const int64_t i : fronts.indices.emplace_back(ParetoOf(kernels[k]))) {
      front.push_back(kernels[k][i]);
    }
    fronts.least = Add(fronts.least, front.front().workspace_bytes);
  }
  return fronts;
}

}  // namespace

Result<WorkspaceDivision> DivideWorkspace(const std::vector<WorkspaceOptions>& kernels,
                                          int64_t total) {
  OOC_ASSIGN(const Fronts fronts, FrontsOf(kernels));
  if (fronts.least > total || fronts.least == kSizeMax) {
    return Error(Code::kOutOfMemory,
                 "a workspace of %lld bytes cannot be divided among %zu kernels; allow %lld bytes, "
                 "the least that works, or measure smaller micro-batches",
                 static_cast<long long>(total), kernels.size(),
                 static_cast<long long>(fronts.least))
        .WithDetail(fronts.least);
  }
  Knapsack knapsack(fronts.options, total - fronts.least);
  WorkspaceDivision division;
  division.chosen = knapsack.Solve();
  for (size_t k = 0; k < kernels.size(); ++k) {
    division.chosen[k] = fronts.indices[k][division.chosen[k]];
    const WorkspaceOption& option = kernels[k][division.chosen[k]];
    division.seconds += option.seconds;
    division.workspace_bytes += option.workspace_bytes;
  }
  division.least_seconds = knapsack.proven() ? division.seconds : knapsack.lost();
  return division;
}

}  // namespace oocdnn
