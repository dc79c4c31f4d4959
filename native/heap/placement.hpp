// Placement: addresses for all large allocations of a step such that they take few bytes.
//
// Each is placed at the lowest address that is free during its lifetime, in an order that is
// improved by trial.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.hpp"
#include "heap/deadline.hpp"
#include "heap/lifetimes.hpp"
#include "heap/occupied.hpp"

namespace oocdnn::heap {

class Placement {
 public:
  // An order of the lifetimes, and the addresses that it results in.
  struct State {
    std::vector<int32_t> order;
    std::vector<int64_t> addresses;  // of each lifetime
  };

  Placement(const Lifetimes& lifetimes, int64_t base, uint64_t seed);

  // Places the open lifetimes beside fixed spans; true once none ends behind the limit. Ends after
  // so many orders, or at the deadline.
  bool Improve(std::vector<Span> fixed, const std::vector<char>& open, int64_t limit, int tries,
               Deadline* deadline);

  [[nodiscard]] int64_t AddressOf(int32_t lifetime) const {
    return state_.addresses[static_cast<size_t>(lifetime)];
  }
  [[nodiscard]] const State& state() const { return state_; }
  void Return(const State& state) { state_ = state; }

 private:
  struct Fit {
    State state;
    int64_t excess = 0;  // bytes behind the limit
  };

  [[nodiscard]] int64_t EndOf(int32_t lifetime, const State& state) const;
  std::vector<int32_t> FreshOrder(bool first, double shape);
  std::vector<int32_t> ChangedOrder(const Fit& best, int64_t limit, std::vector<int32_t>* places);
  std::vector<int32_t> NextOrder(int number, int64_t limit, const Fit* best,
                                 std::vector<int32_t>* places);
  bool IsHopeless(const std::vector<Span>& fixed, const std::vector<int32_t>& places,
                  const Fit& fit, int64_t limit);
  void Fix(const std::vector<Span>& fixed);
  [[nodiscard]] int64_t LowestOf(const Lifetime& lifetime) const;
  int64_t FitAll(const std::vector<Span>& fixed, const std::vector<char>& open, int64_t limit,
                 int64_t most, State* state);

  const Lifetimes& lifetimes_;
  const int64_t base_;
  Random random_;
  State state_;
  Occupied occupied_;
};

}  // namespace oocdnn::heap
