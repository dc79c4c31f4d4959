// Stopwatch: what everything that is measured of a device has in common.
#pragma once

#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "device/device.hpp"
#include "model/profile/profile.hpp"

namespace oocdnn {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What a few runs of the same took.
struct Timing {
  double seconds = kInfinity;  // of the fastest; kInfinity where one failed
  double excess = 0.0;         // seconds that the middle one took longer
  int64_t samples = 0;

  [[nodiscard]] bool ok() const { return seconds < kInfinity; }
  // How a rate is known that rests on it; the spread is unknown where no time is left.
  [[nodiscard]] Evidence evidence() const;
};

Timing TimingOf(std::vector<double> seconds);
// The same of the slower half: for what is timed beside other work, which the fastest run missed.
Timing MiddleOf(std::vector<double> seconds);
// The faster of the same at two moments.
Timing Better(const Timing& one, const Timing& other);
// Of each of so many parts.
Timing Share(const Timing& whole, double parts);
// What `whole` takes longer than `part`, at least nothing.
Timing Beyond(const Timing& whole, const Timing& part);

inline double SecondsOf(const Span& span) {
  return static_cast<double>(span.end_ns - span.begin_ns) * 1e-9;
}

constexpr int kRepetitions = 5;

// Each of so many runs of what `work(Span*)` enqueues on the stream; from the second on no more
// once they took `enough` seconds. Empty where one failed; `failure` receives why.
template <class Work>
std::vector<double> RunsOf(Device& device, Stream stream, const Work& work,
                           double enough = kInfinity, int runs = kRepetitions,
                           Status* failure = nullptr) {
  std::vector<double> seconds;
  for (int i = 0; i < runs; ++i) {
    if (i >= 2 && std::accumulate(seconds.begin(), seconds.end(), 0.0) >= enough) break;
    Span span;
    Status status = work(&span);
    // Waited for in any case: what was enqueued writes to the span, and uses memory that then goes.
    Status ended = device.SynchronizeStream(stream);
    if (!status.ok() || !ended.ok()) {
      if (failure != nullptr) *failure = std::move(status.ok() ? ended : status);
      return {};
    }
    if (SecondsOf(span) > 0) seconds.push_back(SecondsOf(span));
  }
  return seconds;
}

template <class Work>
Timing BestOf(Device& device, Stream stream, const Work& work, double enough = kInfinity,
              Status* failure = nullptr) {
  return TimingOf(RunsOf(device, stream, work, enough, kRepetitions, failure));
}

// So much of something in that time, as a rate that a profile may hold; 0 where it was not timed.
double RateOf(double amount, const Timing& timing);

}  // namespace oocdnn
