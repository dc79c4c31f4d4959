// Which rows of dy a tile has to itself (see Also): backward data's boxes of dy share rows where
// filters reach from one tile into the next, and db counts each element once. Backward filter's
// share none.
#pragma once

#include "geom/tiling.hpp"

namespace oocdnn {

// The tile's box of dy, with its own rows alone valid. Every element of dy is in one tile's; in the
// last of an axis are those too that no tile would begin at.
Box OwnRowsOf(const Problem& problem, const Tiling& tiling, const TileIndex& index);

}  // namespace oocdnn
