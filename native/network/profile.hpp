// Profile: bytes at each position of a step, with sums over ranges in time that grows with the
// square root of the range.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace oocdnn::network {

class Profile {
 public:
  // As many positions; their bytes are set one after the other, then Build is called.
  void Resize(size_t positions) {
    bytes_.resize(positions);
    most_.resize((positions + kBlock - 1) / kBlock);
    added_.resize(most_.size());
  }
  void Set(size_t position, int64_t bytes) { bytes_[position] = bytes; }
  void Build() {
    for (size_t block = 0; block < most_.size(); ++block) {
      added_[block] = 0;
      const size_t begin = block * kBlock, end = std::min(begin + kBlock, bytes_.size());
      most_[block] = MostOf(begin, end);
    }
  }

  [[nodiscard]] size_t size() const { return bytes_.size(); }
  [[nodiscard]] int64_t At(size_t position) const {
    return bytes_[position] + added_[position / kBlock];
  }

  [[nodiscard]] int64_t Most() const {
    int64_t most = 0;
    for (size_t block = 0; block < most_.size(); ++block) {
      most = std::max(most, most_[block] + added_[block]);
    }
    return most;
  }
  // The last position of [begin, end) with more than `bytes`; `end` where there is none.
  [[nodiscard]] size_t LastAbove(size_t begin, size_t end, int64_t bytes) const {
    size_t at = end;
    while (at > begin) {
      const size_t block = (at - 1) / kBlock, first = std::max(block * kBlock, begin);
      if (most_[block] + added_[block] > bytes) {
        for (size_t i = at; i > first; --i) {
          if (bytes_[i - 1] + added_[block] > bytes) return i - 1;
        }
      }
      at = first;
    }
    return end;
  }

  // Adds bytes, not negative, to the positions of [begin, end).
  void Add(size_t begin, size_t end, int64_t bytes) {
    for (size_t at = begin; at < end;) {
      const size_t block = at / kBlock, after = std::min((block + 1) * kBlock, end);
      if (after - at == kBlock) {
        added_[block] += bytes;
      } else {
        int64_t most = most_[block];
        for (size_t i = at; i < after; ++i) most = std::max(most, bytes_[i] += bytes);
        most_[block] = most;
      }
      at = after;
    }
  }

 private:
  static constexpr size_t kBlock = 32;

  [[nodiscard]] int64_t MostOf(size_t begin, size_t end) const {
    int64_t most = bytes_[begin];
    for (size_t i = begin + 1; i < end; ++i) most = std::max(most, bytes_[i]);
    return most;
  }

  std::vector<int64_t> bytes_;  // without what was added to their whole block
  std::vector<int64_t> most_;   // of each block, without that as well
  std::vector<int64_t> added_;
};

}  // namespace oocdnn::network
