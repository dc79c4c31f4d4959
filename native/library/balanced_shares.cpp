#include "library/balanced_shares.hpp"

#include <algorithm>
#include <utility>

namespace oocdnn {
namespace {

constexpr int kMostCuts = 5;          // of a problem; each has plans of its own
constexpr double kWorthwhile = 1.05;  // a call takes so many times as long as with other shares
constexpr int kCallsOfCut = 3;        // with the same shares: one plans, one warms up, one counts
constexpr double kClose = 1.5;        // of the time of the best shares
constexpr double kLeastSeconds = 1e-9, kMostSeconds = 1e9;
constexpr double kLeastRate = 1e-9;  // of a device without a share: it stays without one

double LongestOf(const std::vector<Share>& shares, const std::vector<double>& rates) {
  double longest = 0.0;
  for (size_t device = 0; device < shares.size(); ++device) {
    longest = std::max(longest, static_cast<double>(shares[device].length()) / rates[device]);
  }
  return longest;
}

}  // namespace

double RateOf(int64_t length, double seconds) {
  if (length == 0) return kLeastRate;
  return static_cast<double>(length) / std::clamp(seconds, kLeastSeconds, kMostSeconds);
}

std::vector<Share> WholeOnFirst(const Problem& problem, size_t devices) {
  const int64_t all = problem.shape.n;
  std::vector<Share> shares(devices, Share{Axis::kN, all, all});
  shares.front().begin = 0;
  return shares;
}

size_t FirstWithShare(const std::vector<Share>& shares) {
  size_t device = 0;
  while (device + 1 < shares.size() && !HasShare(shares, device)) ++device;
  return device;
}

BalancedShares::BalancedShares(const Problem& problem, const std::vector<double>& rates, bool adds)
    : shares_(CutInShares(problem, rates, adds)), settled_(shares_.empty()) {
  if (settled_) shares_ = WholeOnFirst(problem, rates.size());
}

std::vector<double> BalancedShares::MeasuredRates(const std::vector<double>& seconds) const {
  std::vector<double> rates;
  rates.reserve(shares_.size());
  for (size_t device = 0; device < shares_.size(); ++device) {
    rates.push_back(RateOf(shares_[device].length(), seconds[device]));
  }
  return rates;
}

void BalancedShares::Balance(const Problem& problem, double call,
                             const std::vector<double>& seconds) {
  if (settled_ || ++calls_ < kCallsOfCut) return;
  if (best_.empty() || call < shortest_) {
    best_ = shares_;
    shortest_ = call;
  }
  calls_ = 0;
  const std::vector<double> rates = MeasuredRates(seconds);
  std::vector<Share> shares = CutInShares(problem, shares_.front().axis, rates);
  const bool better = !shares.empty() && call >= kWorthwhile * LongestOf(shares, rates);
  if (better && ++cuts_ <= kMostCuts) {
    shares_ = std::move(shares);
  } else {
    Settle(rates);
  }
}

// Devices get in each other's way in host memory, so that the fastest may take less time alone. It
// is tried where its rate beside the others comes close.
void BalancedShares::Settle(const std::vector<double>& rates) {
  const auto fastest = std::max_element(rates.begin(), rates.end());
  const int64_t all = shares_.back().end;
  const bool close = static_cast<double>(all) / *fastest < kClose * shortest_;
  if (close && !tried_alone_) {
    tried_alone_ = true;
    const auto alone = static_cast<size_t>(fastest - rates.begin());
    for (size_t device = 0; device < shares_.size(); ++device) {
      shares_[device].begin = device <= alone ? 0 : all;
      shares_[device].end = device < alone ? 0 : all;
    }
    return;
  }
  shares_ = best_;
  settled_ = true;
}

}  // namespace oocdnn
