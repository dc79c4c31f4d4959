// Random numbers of the fuzzers: the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/random.hpp"

namespace oocdnn::clients {

class Random : public oocdnn::Random {
 public:
  using oocdnn::Random::Random;

  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<size_t>(high - low + 1)));
  }
  // Small numbers mostly, else any, near powers of two and the ends.
  int64_t Integer(int64_t small = 9) {
    switch (Below(12)) {
      case 0: return static_cast<int64_t>(Next());
      case 1: return static_cast<int64_t>((uint64_t{1} << Below(64)) + Below(3) - 1);
      case 2: return -Between(0, small);
      case 3: return static_cast<int64_t>(INT32_MAX) + static_cast<int64_t>(Below(3)) - 1;
      default: return Between(0, small);
    }
  }
  int Int(int small = 9) { return static_cast<int>(Integer(small)); }
};

}  // namespace oocdnn::clients
