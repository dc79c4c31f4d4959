// Region: blocks of an arena that are in use at some moments only. Blocks that are never in use
// together may lie in the same bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "geom/lifetimes.hpp"
#include "memory/arena.hpp"

namespace oocdnn {

class Region {
 public:
  using Slots = std::vector<int64_t>;

  // A block that is in use from one moment to another, both included. Place writes its offset to
  // all entries of each of `slots`, and gives those without entries one.
  void Add(int64_t bytes, int64_t from, int64_t until, std::vector<Slots*> slots);
  // A block whose offset Place writes to `offset`.
  void Add(int64_t bytes, int64_t from, int64_t until, int64_t* offset);
  // Books the region. What Add was given must be where it was.
  void Place(int64_t alignment, Offsets* offsets);

 private:
  struct Owner {
    std::vector<Slots*> slots;
    int64_t* offset = nullptr;
  };

  std::vector<Lifetime> lifetimes_;
  std::vector<Owner> owners_;  // of each
};

}  // namespace oocdnn
