// A C function for the packing of blocks with limited lifetimes.
#include "geom/lifetimes.hpp"
#include "testing/export.hpp"

// `lifetimes`: of each of `count` blocks its bytes, from and until. `offsets` gets one for each;
// returns the bytes of the region.
OOC_EXPORT int64_t oocdnn_testing_pack_lifetimes(const int64_t* lifetimes, int64_t count,
                                                 int64_t alignment, int64_t* offsets) {
  std::vector<oocdnn::Lifetime> all;
  all.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    all.push_back({lifetimes[3 * i], lifetimes[3 * i + 1], lifetimes[3 * i + 2], 0});
  }
  const int64_t bytes = oocdnn::Pack(&all, alignment);
  for (const oocdnn::Lifetime& lifetime : all) *offsets++ = lifetime.offset;
  return bytes;
}
