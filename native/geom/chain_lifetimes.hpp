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

// Moments of a step: a link takes its residual and convolves in the first, and finishes and
// forwards its result in the second.
constexpr int64_t ConvolvedAt(size_t link) { return 2 * static_cast<int64_t>(link); }
constexpr int64_t FinishedAt(size_t link) { return ConvolvedAt(link) + 1; }

// Of each link's tile of x, and of the z that it is copied from; of 0 bytes where there is none. A
// tile that is read as a residual later stays until then.
struct ForwardedLifetimes {
  std::vector<Lifetime> x, z;
};

// `forwarded`: of each link; the first one gets no tile. `shares`: for each link, true if its
// residual is read in place when the link ends; otherwise it is copied when the link begins.
ForwardedLifetimes LifetimesOf(const Program& chain, const std::vector<ForwardedTile>& forwarded,
                               const std::vector<bool>& shares);

}  // namespace oocdnn
