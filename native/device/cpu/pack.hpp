// Packing for forward and backward data: what neighbouring positions read, side by side.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "device/cpu/gather.hpp"

namespace oocdnn::cpu {

// to[i] = from[i * step], with the common steps known to the compiler.
template <class T>
void CopySpaced(const T* from, int64_t step, int64_t count, T* to) {
  if (step == 1) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  } else if (step == 2) {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * 2];
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * step];
  }
}

// Packs the elements that the positions of the segments read through one tap on each axis; zero
// outside of the source.
template <class T>
void PackStep(const Gather& gather, const Phase& phase, const std::vector<Segment>& segments,
              const T* channel, const std::array<Tap, 3>& taps, T* to) {
  const auto& axis = phase.axis;
  const Spatial& size = gather.source;
  const auto& [d, h, w] = taps;
  const int64_t image = gather.g * gather.reduced * size[0] * size[1] * size[2];
  for (const Segment& segment : segments) {
    const int64_t sd = segment.d * axis[0]->step + d.offset;
    const int64_t sh = segment.h * axis[1]->step + h.offset;
    const int64_t sw = segment.w * axis[2]->step + w.offset;
    T* const row = to + segment.lane;
    int64_t begin = 0, end = segment.count;  // of the positions that read inside of the source
    if (axis[2]->step == 1) {
      end = std::clamp<int64_t>(size[2] - sw, 0, end);
      begin = std::clamp<int64_t>(-sw, 0, end);
    }
    if (sd < 0 || sd >= size[0] || sh < 0 || sh >= size[1]) begin = end = 0;
    if (begin < end) {
      const T* const from = channel + segment.n * image + (sd * size[1] + sh) * size[2];
      CopySpaced(from + sw + begin * axis[2]->step, axis[2]->step, end - begin, row + begin);
    }
    std::fill(row, row + begin, T(0));
    std::fill(row + end, row + segment.count, T(0));
  }
}

}  // namespace oocdnn::cpu
