// Random numbers of the fuzzers: the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace oocdnn::clients {

// splitmix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  size_t Below(size_t count) { return static_cast<size_t>(Next() % count); }
  bool Chance(int of_hundred) { return Below(100) < static_cast<size_t>(of_hundred); }
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

 private:
  uint64_t state_;
};

}  // namespace oocdnn::clients
