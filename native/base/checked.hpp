// Arithmetic on sizes that says when it overflows, and the integer divisions geometry needs.
#pragma once

#include <cstdint>
#include <limits>

namespace oocdnn {

// Saturating product and sum of non-negative sizes: an overflow becomes int64 max, which no budget
// and no tensor passes, so that a check on the result catches it.
constexpr int64_t kSizeMax = std::numeric_limits<int64_t>::max();

constexpr int64_t Mul(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kSizeMax : product;
}

constexpr int64_t Add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kSizeMax : sum;
}

// Quotients rounded toward minus and plus infinity; b > 0.
constexpr int64_t FloorDiv(int64_t a, int64_t b) { return a / b - ((a % b) < 0 ? 1 : 0); }
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return a / b + ((a % b) > 0 ? 1 : 0); }
constexpr int64_t RoundUp(int64_t a, int64_t multiple) { return CeilDiv(a, multiple) * multiple; }

}  // namespace oocdnn
