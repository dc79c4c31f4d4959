// Memory of the tiles that the links of a chain forward to each other.
#pragma once

#include <vector>

#include "geom/chain.hpp"
#include "geom/lifetimes.hpp"

namespace oocdnn {

// Bytes of a link's tile of x; and of the tile of z that x is copied from, 0 if the previous link
// writes x itself. `convolved`: the previous link's engine, not a finishing pass, writes z while it
// reads its own x.
struct ForwardedTile {
  int64_t x = 0, z = 0;
  bool convolved = false;
};

// The two regions of all links, for x and for the z that it is copied from. A tile that is read as
// a residual later stays until then.
struct ForwardedRegions {
  std::vector<Lifetime> x, z;
  int64_t x_bytes = 0, z_bytes = 0;
};

// `forwarded`: of each link; the first one gets no tile. `shares`: for each link, true if its
// residual is read in place when the link ends; otherwise it is copied when the link begins.
ForwardedRegions PackForwarded(const Program& chain, const std::vector<ForwardedTile>& forwarded,
                               const std::vector<bool>& shares, int64_t alignment);

}  // namespace oocdnn
