// Stopwatch: what everything that is measured of a device has in common.
#pragma once

#include <algorithm>
#include <limits>

#include "device/device.hpp"

namespace oocdnn {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline double SecondsOf(const Span& span) {
  return static_cast<double>(span.end_ns - span.begin_ns) * 1e-9;
}

// The best of a few runs of what `work(Span*)` enqueues on the stream, or infinity where one fails.
template <class Work>
double BestSeconds(Device& device, Stream stream, const Work& work) {
  constexpr int kRepetitions = 5;
  double best = kInfinity;
  for (int i = 0; i < kRepetitions; ++i) {
    Span span;
    const Status status = work(&span);
    // Waited for in any case: what was enqueued writes to the span, and uses memory that then goes.
    const Status ended = device.SynchronizeStream(stream);
    if (!status.ok() || !ended.ok()) return kInfinity;
    if (SecondsOf(span) > 0) best = std::min(best, SecondsOf(span));
  }
  return best;
}

// A rate that was measured, or what was there where it could not be.
inline void SetRate(double* rate, double amount, double seconds) {
  constexpr double kLeast = 1e6, kMost = 1e16;
  if (seconds > 0 && seconds < kInfinity) *rate = std::clamp(amount / seconds, kLeast, kMost);
}

}  // namespace oocdnn
