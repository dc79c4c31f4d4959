#include "device/cpu/gather.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn::cpu {
namespace {

GatherAxis ForwardAxis(const ConvShape& shape, int d) {
  GatherAxis axis;
  axis.extent = shape.out[d];
  axis.step = shape.stride[d];
  for (int64_t tap = 0; tap < shape.filter[d]; ++tap) {
    axis.taps.push_back({tap, tap * shape.dilation[d]});
  }
  return axis;
}

// Positions phase, phase + stride, ... of dx, and the taps that reach them.
GatherAxis DataAxis(const ConvShape& shape, int d, int64_t phase) {
  GatherAxis axis;
  axis.extent = CeilDiv(shape.in[d] - phase, shape.stride[d]);
  axis.out_begin = phase;
  axis.out_step = shape.stride[d];
  for (int64_t tap = 0; tap < shape.filter[d]; ++tap) {
    const int64_t distance = phase - tap * shape.dilation[d];
    if (distance % shape.stride[d] != 0) continue;
    axis.taps.push_back({tap, distance / shape.stride[d]});
  }
  return axis;
}

}  // namespace

int64_t Phase::Positions() const { return axis[0]->extent * axis[1]->extent * axis[2]->extent; }

int64_t Phase::Taps() const {
  return static_cast<int64_t>(axis[0]->taps.size() * axis[1]->taps.size() * axis[2]->taps.size());
}

bool Phase::Contiguous() const {
  return std::all_of(axis.begin(), axis.end(),
                     [](const GatherAxis* a) { return a->out_step == 1; });
}

int64_t Gather::Phases() const {
  return static_cast<int64_t>(phases[0].size() * phases[1].size() * phases[2].size());
}

Phase Gather::PhaseAt(int64_t number) const {
  const auto at = static_cast<size_t>(number);
  const size_t rows = phases[1].size(), cols = phases[2].size();
  return {{&phases[0][at / (rows * cols)], &phases[1][at / cols % rows], &phases[2][at % cols]}};
}

Gather GatherOf(const TileOp& op) {
  const ConvShape& shape = op.shape;
  const bool forward = op.direction == Direction::kForward;
  Gather gather{shape.n,
                shape.g,
                forward ? shape.k : shape.c,
                forward ? shape.c : shape.k,
                forward ? shape.in : shape.out,
                forward ? shape.out : shape.in,
                shape.filter,
                {}};
  for (int d = 0; d < 3; ++d) {
    if (forward) gather.phases[d].push_back(ForwardAxis(shape, d));
    const int64_t phases = forward ? 0 : std::min(shape.stride[d], shape.in[d]);
    for (int64_t phase = 0; phase < phases; ++phase) {
      gather.phases[d].push_back(DataAxis(shape, d, phase));
    }
  }
  return gather;
}

void CutIntoSegments(const Phase& phase, int64_t begin, int64_t count,
                     std::vector<Segment>* segments) {
  segments->clear();
  const int64_t rows = phase.axis[1]->extent, cols = phase.axis[2]->extent;
  const int64_t positions = phase.Positions();
  for (int64_t lane = 0; lane < count;) {
    const int64_t position = (begin + lane) % positions;
    const int64_t w = position % cols;
    const int64_t run = std::min(cols - w, count - lane);
    segments->push_back({(begin + lane) / positions, position / (rows * cols),
                         position / cols % rows, w, run, lane});
    lane += run;
  }
}

}  // namespace oocdnn::cpu
