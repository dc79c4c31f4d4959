// Random numbers that are the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace oocdnn {

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

 private:
  uint64_t state_;
};

}  // namespace oocdnn
