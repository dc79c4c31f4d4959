// The memory of what the links of a chain hand to each other.
#pragma once

#include <vector>

#include "geom/chain.hpp"
#include "geom/lives.hpp"

namespace oocdnn {

// Bytes of a link's tile of x, and of the tile of z that this is copied from where the link before
// it cannot write it; else 0. `convolved`: that link's engine writes z, while it reads its own x,
// and no finishing pass does.
struct HandedOn {
  int64_t x = 0, z = 0;
  bool convolved = false;
};

// Two regions, by link: of x, and of the z that it is copied from. What is read as a residual later
// on stays until then.
struct HandedRegions {
  std::vector<Life> x, z;
  int64_t x_bytes = 0, z_bytes = 0;
};

// `handed`: by link, of which the first is handed nothing. `shares`: by link, whether its residual
// is read where it lies, when the link ends; else it is copied when the link begins.
HandedRegions PackHanded(const Chain& chain, const std::vector<HandedOn>& handed,
                         const std::vector<bool>& shares, int64_t alignment);

}  // namespace oocdnn
