// How the threads of a kernel share out a tile, see TileShares.
#pragma once

#include "device/cuda/platform.cuh"

namespace oocdnn::cuda {

// Where a share begins. c, n or w is the first that is looped over.
struct SharePlace {
  int n, g, c, d, h, w;
};

// kAcross: neighbouring threads have neighbouring channels, and loop along W. kGroup: elements
// along W of one share.
template <bool kAcross, int kGroup>
OOC_HOST_DEVICE SharePlace PlaceAt(const TileShares& shares, unsigned number) {
  SharePlace place{};
  if (kAcross) {
    place.c = Take(&number, shares.channels);
    place.g = Take(&number, shares.groups);
  }
  place.w = Take(&number, shares.width) * kGroup;
  place.h = Take(&number, shares.height);
  place.d = Take(&number, shares.depth);
  if (!kAcross) {
    place.c = Take(&number, shares.channels);
    place.g = Take(&number, shares.groups);
  }
  place.n = Take(&number, shares.images);
  if (!kAcross && shares.loop == 0) place.n *= shares.loops;
  if (!kAcross && shares.loop == 2) place.c *= shares.loops;
  return place;
}

// How far a share goes before what it loops over ends.
template <bool kAcross>
OOC_HOST_DEVICE int LoopsFrom(const TileShares& shares, const SharePlace& at) {
  const int left = shares.loop_extent - (kAcross ? at.w : shares.loop == 0 ? at.n : at.c);
  return left < shares.loops ? left : shares.loops;
}

// Of the image, the group and the channel.
OOC_HOST_DEVICE int OffsetOf(const int (&stride)[kCopyDims], const SharePlace& at) {
  return at.n * stride[0] + at.g * stride[1] + at.c * stride[2];
}

}  // namespace oocdnn::cuda
