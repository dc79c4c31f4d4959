// Occupied: intervals of addresses in use for some time, for looking up the lowest address that is
// free for some time.
//
// They are in order of address, in lists by how long they last and when, so that what is short
// looks at those that are long and at few others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace oocdnn::heap {

// An interval of addresses in use from one moment to another.
struct Span {
  int64_t address = 0;
  int64_t end = 0;
  int32_t from = 0;  // -1 or more
  int32_t to = 0;
};

// Moments: from one to another, and all up to a third one.
struct Times {
  int32_t from = 0;
  int32_t to = 0;
  int32_t before = -1;

  [[nodiscard]] bool Meet(const Span& span) const {
    return (span.from < to && span.to > from) || span.from < before;
  }
};

class Occupied {
 public:
  // With moments below this one.
  explicit Occupied(int32_t moments);

  void Clear();
  void Add(const Span& span);
  // The lowest address from `base` on where so many bytes are in use at none of these times.
  [[nodiscard]] int64_t Lowest(int64_t base, int64_t bytes, const Times& times) const;

 private:
  // Spans in order of address, in pieces, so that one is put among them in little time.
  class List {
   public:
    void Clear() { pieces_.clear(); }
    void Add(const Span& span);
    [[nodiscard]] const std::vector<std::vector<Span>>& pieces() const { return pieces_; }

   private:
    std::vector<std::vector<Span>> pieces_;
  };
  class Reader;

  // Spans that last at most `width` moments, and longer than those of the level before: all, and
  // those that meet each `width` moments.
  struct Level {
    int32_t width = 0;
    List all;
    std::vector<List> parts;

    [[nodiscard]] size_t PartAt(int32_t moment) const;
  };

  static constexpr std::array<int32_t, 2> kWidths{64, 1024};

  std::array<Level, kWidths.size()> levels_;
  List long_;
};

}  // namespace oocdnn::heap
