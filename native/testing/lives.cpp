// A C door to the packing of blocks by their lives.
#include "geom/lives.hpp"
#include "testing/door.hpp"

// `lives`: of each of `count` blocks its bytes, from and until. `offsets` gets one for each;
// returns the bytes of the region.
OOC_DOOR int64_t oocdnn_testing_pack_lives(const int64_t* lives, int64_t count, int64_t alignment,
                                           int64_t* offsets) {
  std::vector<oocdnn::Life> all;
  all.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    all.push_back({lives[3 * i], lives[3 * i + 1], lives[3 * i + 2], 0});
  }
  const int64_t bytes = oocdnn::Pack(&all, alignment);
  for (const oocdnn::Life& life : all) *offsets++ = life.offset;
  return bytes;
}
