// The region begins at an offset of its own; blocks lie in it as their lifetimes allow.
#include "memory/region.hpp"

#include <algorithm>
#include <utility>

namespace oocdnn {

void Region::Add(int64_t bytes, int64_t from, int64_t until, std::vector<Slots*> slots) {
  lifetimes_.push_back({bytes, from, until, 0});
  owners_.push_back({std::move(slots), nullptr});
}

void Region::Add(int64_t bytes, int64_t from, int64_t until, int64_t* offset) {
  lifetimes_.push_back({bytes, from, until, 0});
  owners_.push_back({{}, offset});
}

void Region::Place(int64_t alignment, Offsets* offsets) {
  const int64_t region = offsets->Book(Pack(&lifetimes_, alignment));
  for (size_t i = 0; i < owners_.size(); ++i) {
    const int64_t offset = region + lifetimes_[i].offset;
    if (owners_[i].offset != nullptr) *owners_[i].offset = offset;
    for (Slots* const slots : owners_[i].slots) {
      if (slots->empty()) slots->push_back(0);
      std::fill(slots->begin(), slots->end(), offset);
    }
  }
}

}  // namespace oocdnn
