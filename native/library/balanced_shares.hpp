// BalancedShares: the shares of a problem on several devices, and how calls with them went.
#pragma once

#include <cstdint>
#include <vector>

#include "geom/share.hpp"

namespace oocdnn {

// The rate of a device that takes so many seconds for a share of this length.
double RateOf(int64_t length, double seconds);
// The whole problem on the first of the devices.
std::vector<Share> WholeOnFirst(const Problem& problem, size_t devices);
inline bool HasShare(const std::vector<Share>& shares, size_t device) {
  return shares[device].length() > 0;
}
// The first device that has a share, whose sums are the caller's.
size_t FirstWithShare(const std::vector<Share>& shares);

class BalancedShares {
 public:
  // Shares by the rates of the devices; the whole on the first one if the problem cannot be cut.
  // `adds` as in CutInShares.
  BalancedShares(const Problem& problem, const std::vector<double>& rates, bool adds);

  [[nodiscard]] const std::vector<Share>& shares() const { return shares_; }
  // After a call that took `call` seconds, and each device `seconds`: cuts the problem anew if
  // these say that it is worth it. In the end the shares of the shortest call stay.
  void Balance(const Problem& problem, double call, const std::vector<double>& seconds);

 private:
  [[nodiscard]] std::vector<double> MeasuredRates(const std::vector<double>& seconds) const;
  void Settle(const std::vector<double>& rates);

  std::vector<Share> shares_;
  int cuts_ = 1, calls_ = 0;  // `calls_`: with these shares
  bool tried_alone_ = false, settled_ = false;
  std::vector<Share> best_;  // the shares of the shortest call
  double shortest_ = 0.0;    // seconds of that call
};

}  // namespace oocdnn
