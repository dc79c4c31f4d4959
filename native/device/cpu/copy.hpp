// Copies between the caller's strided tensors and tile buffers, for every layout that has
// addresses, and for opaque ones through their NativeLayout.
#pragma once

#include "device/cpu/engine.hpp"

namespace oocdnn::cpu {

// Writes [tile_begin, tile_end) of the tile: elements of the view where the box is valid, zeros
// elsewhere. Where that part reaches the last channel, the padded lanes behind it become zero too.
Status FetchTile(const Transfer& transfer, Parallel& parallel);

// Writes the valid elements of [tile_begin, tile_end) of the tile to the view.
Status DrainTile(const Transfer& transfer, Parallel& parallel);

// Copies elements, and padded lanes where the range reaches the last channel, between two tiles.
Status MoveTile(const TileMove& move, Parallel& parallel);

// Bytes of the view that the transfer reads or writes.
int64_t BytesOf(const Transfer& transfer);

}  // namespace oocdnn::cpu
