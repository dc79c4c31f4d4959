// The geometry of forward and backward data, which are one thing: every output position gathers
// source elements through taps, and neighbours in the output read neighbours in the source.
//
// Forward is one phase. Backward data with stride s falls into s phases per axis, by position
// modulo s: all positions of one phase are reached by the same taps.
#pragma once

#include <array>
#include <vector>

#include "geom/tile_op.hpp"

namespace oocdnn::cpu {

// One tap on one axis: its index in the filter, and where it reads: source index of output
// position i is i * step + offset (i counts within the phase).
struct Tap {
  int64_t index, offset;
};

// Only where `step` is 1 may positions read outside of the source; they read zero there.
struct GatherAxis {
  int64_t extent = 0;                   // positions of the phase
  int64_t out_begin = 0, out_step = 1;  // position i lies at out_begin + i * out_step
  int64_t step = 1;
  std::vector<Tap> taps;  // in rising order; their indices are evenly spaced
};

// One of the phases of each axis.
struct Phase {
  std::array<const GatherAxis*, 3> axis;
  [[nodiscard]] int64_t Positions() const;
  [[nodiscard]] int64_t Taps() const;
  // Whether position numbers of an image are also the offsets of its output elements.
  [[nodiscard]] bool Contiguous() const;
};

// `reduced` channels of the source and all taps make an element of `channels` output channels.
struct Gather {
  int64_t n = 0, g = 0, channels = 0, reduced = 0;
  Spatial source{}, target{}, filter{};
  std::array<std::vector<GatherAxis>, 3> phases;  // of each axis; each has positions
  [[nodiscard]] int64_t Phases() const;
  [[nodiscard]] Phase PhaseAt(int64_t number) const;
};

Gather GatherOf(const TileOp& op);

// Positions [begin, begin + count) of a phase, counted through all images, as runs within a row of
// the output.
struct Segment {
  int64_t n, d, h, w;  // of the first position
  int64_t count;
  int64_t lane;  // of the first position, from `begin`
};
void CutIntoSegments(const Phase& phase, int64_t begin, int64_t count,
                     std::vector<Segment>* segments);

}  // namespace oocdnn::cpu
