#include "heap/placement.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace oocdnn::heap {
namespace {

// Exponents of bytes beside length, in the first orders.
constexpr std::array<double, 5> kShapes{0.5, 1.0, 0.0, 0.25, 0.75};
constexpr int kFresh = 40;       // orders before the best is only changed
constexpr size_t kMoved = 5;     // allocations that are moved at a time, at most
constexpr int kOthers = 35;      // of a hundred of them are drawn from all
constexpr double kNoise = 0.43;  // deviation of the weights of a fresh order, in powers of two
constexpr int64_t kEndless = std::numeric_limits<int64_t>::max();

size_t Index(int32_t number) { return static_cast<size_t>(number); }

// From 0 to 1.
double Unit(Random* random) {
  constexpr double kUnit = 1.0 / 9007199254740992.0;
  return static_cast<double>(random->Next() >> 11U) * kUnit;
}

// Distributed about as the normal distribution, without a function whose last bit differs between
// machines.
double Normal(Random* random) {
  double sum = 0.0;
  for (int i = 0; i < 3; ++i) sum += 2.0 * Unit(random) - 1.0;
  return sum;
}

// The logarithm to base 2 of a positive number, linear between powers of two, for the same reason.
double Log2(int64_t number) {
  const int exponent = 63 - __builtin_clzll(static_cast<uint64_t>(number));
  return exponent + static_cast<double>(number) / static_cast<double>(int64_t{1} << exponent) - 1.0;
}

}  // namespace

Placement::Placement(const Lifetimes& lifetimes, int64_t base, uint64_t seed)
    : lifetimes_(lifetimes), base_(base), random_(seed), occupied_(lifetimes.last() + 1) {
  state_.addresses.resize(lifetimes.size());
}

bool Placement::Improve(std::vector<Span> fixed, const std::vector<char>& open, int64_t limit,
                        int tries, Deadline* deadline) {
  std::sort(fixed.begin(), fixed.end(),
            [](const Span& a, const Span& b) { return a.address < b.address; });
  std::vector<int32_t> places;
  for (size_t lifetime = 0; lifetime < lifetimes_.size(); ++lifetime) {
    if (open[lifetime] != 0) places.push_back(static_cast<int32_t>(lifetime));
  }
  std::optional<Fit> best;
  for (int number = 0; number < tries; ++number) {
    Fit next;
    next.state = {NextOrder(number, limit, best ? &*best : nullptr, &places), state_.addresses};
    next.excess = FitAll(fixed, open, limit, best ? best->excess : kEndless, &next.state);
    if (!best || next.excess <= best->excess) best = std::move(next);
    if (best->excess == 0 || deadline->Passed()) break;
    if (number == 0 && IsHopeless(fixed, places, *best, limit)) break;
  }
  const int64_t excess = best->excess;
  state_ = std::move(best->state);
  return excess == 0;
}

// Returns true if no order helps: an allocation that ends behind the limit does not fit below it
// even if only the fixed spans are placed.
bool Placement::IsHopeless(const std::vector<Span>& fixed, const std::vector<int32_t>& places,
                           const Fit& fit, int64_t limit) {
  Fix(fixed);
  return std::any_of(places.begin(), places.end(), [&](int32_t lifetime) {
    if (EndOf(lifetime, fit.state) <= limit) return false;
    const Lifetime& one = lifetimes_[Index(lifetime)];
    return LowestOf(one) + one.bytes > limit;
  });
}

void Placement::Fix(const std::vector<Span>& fixed) {
  occupied_.Clear();
  for (const Span& span : fixed) occupied_.Add(span);
}

int64_t Placement::LowestOf(const Lifetime& lifetime) const {
  return occupied_.Lowest(base_, lifetime.bytes, {lifetime.begin, lifetime.end, lifetime.again});
}

int64_t Placement::EndOf(int32_t lifetime, const State& state) const {
  return state.addresses[Index(lifetime)] + lifetimes_[Index(lifetime)].bytes;
}

std::vector<int32_t> Placement::NextOrder(int number, int64_t limit, const Fit* best,
                                          std::vector<int32_t>* places) {
  if (number == 0 && !state_.order.empty()) return state_.order;
  const bool first = static_cast<size_t>(number) < kShapes.size();
  const bool fresh = places->size() == lifetimes_.size() && number < kFresh;
  if (best == nullptr || (fresh && (first || random_.Chance(50)))) {
    return FreshOrder(first, first ? kShapes[static_cast<size_t>(number)] : Unit(&random_));
  }
  return ChangedOrder(*best, limit, places);
}

// The largest product of powers of bytes and length first.
std::vector<int32_t> Placement::FreshOrder(bool first, double shape) {
  std::vector<double> weights;
  weights.reserve(lifetimes_.size());
  for (const Lifetime& lifetime : lifetimes_.all()) {
    const double noise = first ? 0.0 : kNoise * Normal(&random_);
    weights.push_back(shape * Log2(lifetime.bytes) +
                      (1.0 - shape) * Log2(lifetime.end - lifetime.begin) + noise);
  }
  std::vector<int32_t> order(lifetimes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return weights[Index(a)] > weights[Index(b)]; });
  return order;
}

// A few of those behind the limit come earlier, and a few of all come elsewhere: one that is in the
// way may be among them.
std::vector<int32_t> Placement::ChangedOrder(const Fit& best, int64_t limit,
                                             std::vector<int32_t>* places) {
  const auto inside = std::stable_partition(places->begin(), places->end(), [&](int32_t lifetime) {
    return EndOf(lifetime, best.state) > limit;
  });
  const auto behind = static_cast<size_t>(inside - places->begin());
  std::vector<int32_t> order = best.state.order;
  const size_t count = 1 + random_.Below(kMoved);
  for (size_t i = 0; i < count; ++i) {
    const bool other = random_.Chance(kOthers);
    const int32_t lifetime = (*places)[random_.Below(other ? places->size() : behind)];
    const double draw = Unit(&random_);
    order.erase(std::find(order.begin(), order.end(), lifetime));
    const double place = static_cast<double>(order.size()) * (other ? draw : draw * draw);
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(place), lifetime);
  }
  return order;
}

// First fit in this order, and the bytes behind the limit, of all allocations; ends early where
// they pass `most`.
int64_t Placement::FitAll(const std::vector<Span>& fixed, const std::vector<char>& open,
                          int64_t limit, int64_t most, State* state) {
  Fix(fixed);
  int64_t excess = 0;
  for (const int32_t index : state->order) {
    if (open[Index(index)] == 0) continue;
    const Lifetime& lifetime = lifetimes_[Index(index)];
    const int64_t address = LowestOf(lifetime), end = address + lifetime.bytes;
    state->addresses[Index(index)] = address;
    occupied_.Add({address, end, lifetime.begin, lifetime.end});
    if (lifetime.again != kNever) occupied_.Add({address, end, -1, lifetime.again});
    excess += std::max<int64_t>(end - limit, 0);
    if (excess > most) break;
  }
  return excess;
}

}  // namespace oocdnn::heap
