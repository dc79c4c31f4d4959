#include "geom/overlap.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

// The most branches that one test visits, about a millisecond.
constexpr int64_t kMostBranches = 100'000;

// The bytes between the lowest and the highest address of a box, the last element included.
struct Hull {
  int64_t begin = 0, last = 0, end = 0;
};

Hull HullOf(const StridedBox& box) {
  Hull hull{box.address, box.address, 0};
  for (size_t d = 0; d < box.dims.size(); ++d) {
    const int64_t span = (box.dims[d] - 1) * box.stride[d];
    (span < 0 ? hull.begin : hull.last) += span;
  }
  hull.end = hull.last + box.element;
  return hull;
}

// The values 0, step, 2 step, ..., count * step.
struct Term {
  int64_t step = 0, count = 0;
};

// Sums of one value of each term, the smallest steps first.
class Sums {
 public:
  Sums(const StridedBox& a, const StridedBox& b) {
    for (const StridedBox* box : {&a, &b}) {
      for (size_t d = 0; d < box->dims.size(); ++d) {
        const int64_t step = std::abs(box->stride[d]), count = box->dims[d] - 1;
        if (step != 0 && count != 0) terms_[size_++] = {step, count};
      }
    }
    Join();
    int64_t span = 0, divisor = 0;
    for (size_t i = 0; i < size_; ++i) {
      span += terms_[i].step * terms_[i].count;
      divisor = std::gcd(divisor, terms_[i].step);
      spans_[i] = span;
      divisors_[i] = divisor;
    }
  }

  // True if a sum lies in [low, high], or if the search was given up.
  bool Reach(int64_t low, int64_t high) { return Reach(size_, low, high); }

 private:
  // Makes one term of those that give an arithmetic sequence together: axes that are contiguous in
  // memory, and the same axis of both boxes.
  void Join() {
    std::sort(terms_.begin(), terms_.begin() + size_,
              [](const Term& a, const Term& b) { return a.step < b.step; });
    size_t kept = 0;
    for (size_t i = 0; i < size_; ++i) {
      const Term term = terms_[i];
      if (kept > 0) {
        Term& last = terms_[kept - 1];
        const int64_t ratio = term.step / last.step;
        if (term.step % last.step == 0 && ratio <= last.count + 1) {
          last.count += ratio * term.count;
          continue;
        }
      }
      terms_[kept++] = term;
    }
    size_ = kept;
  }

  // With the first `count` terms.
  bool Reach(size_t count, int64_t low, int64_t high) {
    if (count == 0) return low <= 0 && 0 <= high;
    const size_t last = count - 1;
    const Term& term = terms_[last];
    if (high < 0 || spans_[last] < low) return false;
    if (FloorDiv(high, divisors_[last]) * divisors_[last] < low) return false;
    if (term.step <= high - low + 1) return true;  // no step passes over the interval
    const int64_t rest = last == 0 ? 0 : spans_[last - 1];
    const int64_t most = std::min(term.count, FloorDiv(high, term.step));
    for (int64_t i = std::max<int64_t>(CeilDiv(low - rest, term.step), 0); i <= most; ++i) {
      if (--branches_ < 0) return true;
      if (Reach(last, low - i * term.step, high - i * term.step)) return true;
    }
    return false;
  }

  std::array<Term, 12> terms_{};
  std::array<int64_t, 12> spans_{}, divisors_{};  // of the terms up to each
  size_t size_ = 0;
  int64_t branches_ = kMostBranches;
};

bool Empty(const StridedBox& box) { return std::count(box.dims.begin(), box.dims.end(), 0) > 0; }

}  // namespace

// The index of `a` counts from its lowest address up and that of `b` from its highest address down,
// so that both only add: elements meet where the sum of all terms equals the distance between these
// two addresses, give or take the bytes of an element.
bool SharesBytes(const StridedBox& a, const StridedBox& b) {
  if (Empty(a) || Empty(b)) return false;
  const Hull first = HullOf(a), second = HullOf(b);
  if (first.end <= second.begin || second.end <= first.begin) return false;
  const int64_t distance = second.last - first.begin;
  return Sums(a, b).Reach(distance - a.element + 1, distance + b.element - 1);
}

}  // namespace oocdnn
