// Scheduler: positions of copies for given policies, released as late and fetched as early as a
// limit of device bytes allows.
//
// The device never holds more than the limit, whatever the real rates of the copies are: a tensor's
// bytes are free at its release position because the device waits there for the copy. Rates decide
// only how long it waits.
//
// The device does what the host enqueues: it begins an operation no earlier than the host begins to
// enqueue it, and ends it no earlier than the host. The host never waits for the device.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "network/profile.hpp"
#include "network/step.hpp"

namespace oocdnn::network {

// Positions of one saved tensor that is not kept.
struct Movement {
  int64_t release = -1;  // its bytes are free before this operation; the device waits for the copy
  int64_t fetch = -1;    // its bytes are taken again before this operation, and its copy starts
  int64_t need = -1;     // it is complete before this operation
};

// The cost of a schedule.
struct Totals {
  double seconds = 0.0;      // of the step
  double waiting = 0.0;      // of these, those in which the device waits for copies
  double recomputing = 0.0;  // those for recipes and squeezing
  double late = 0.0;         // and those in which it waits for the host
  int64_t peak_bytes = 0;
  int64_t excess_bytes = 0;  // by which the limit is passed, summed over the peaks
};

// Seconds of a schedule, and a price where it passes the limit: more than for waiting until as many
// bytes were copied.
struct Price {
  double seconds_per_byte = 0.0;

  [[nodiscard]] double Of(double seconds, int64_t excess) const {
    constexpr double kDearer = 1.05;  // a schedule that passes the limit at all
    if (excess <= 0) return seconds;
    return kDearer * seconds + seconds_per_byte * static_cast<double>(excess);
  }
};

// A cost above which a schedule is of no interest.
struct Cutoff {
  double cost;
  Price price;
};

class Scheduler {
 public:
  // `step` is as Check accepts it.
  explicit Scheduler(Step step);

  [[nodiscard]] const Step& step() const { return step_; }
  // Seconds of the step where everything is kept.
  [[nodiscard]] double plain_seconds() const { return starts_.back(); }
  // Seconds that no schedule is below whose choices compute for so long.
  [[nodiscard]] double LeastSeconds(double computing) const {
    return std::max(plain_seconds(), seconds_ + computing);
  }
  // Seconds that a choice computes.
  [[nodiscard]] double SecondsOf(size_t index, Choice choice) const;

  // The schedule of choices as CheckChoices accepts them, within `limit` of magnitude up to 2^60.
  // The peak passes the limit where no positions fit. A tensor that is needed before its copy to
  // the host ends becomes kKeep; one whose smaller form a recipe cannot read, kSwap.
  const Totals& Run(int64_t limit, std::span<const Choice> choices);
  // The same, but false as soon as it is certain to cost more than the cutoff.
  bool RunWithin(int64_t limit, std::span<const Choice> choices, const Cutoff& cutoff);

  // Results of the last run; undefined after a run that was cut off.
  [[nodiscard]] const Totals& totals() const { return totals_; }
  [[nodiscard]] const std::vector<Choice>& choices() const { return choices_; }
  [[nodiscard]] const std::vector<Movement>& movements() const { return movements_; }
  [[nodiscard]] int64_t BytesAt(size_t position) const { return bytes_.At(position); }
  // Seconds of waiting for each saved tensor.
  [[nodiscard]] const std::vector<double>& waits() const { return waits_; }

 private:
  void CountExcess(size_t position);
  void Prepare(int64_t limit, std::span<const Choice> choices);
  void FindNeeds();
  void FindStarts();
  double BytesWithoutCopies();
  void QueueFetches();
  [[nodiscard]] bool Passes(const Cutoff& cutoff, int64_t excess, double least) const;
  bool Walk(const Cutoff& cutoff);
  void EndForwardUse(size_t position);
  void KeepUncopied(size_t position);
  void Release(size_t position);
  void Fetch(size_t position);
  bool FetchOne(size_t position, size_t index, size_t latest);
  void Complete(size_t position);
  void Produce(size_t position);
  void Drop(size_t index);
  void Enqueue(double seconds, double host);
  void Compute(double seconds, double host);
  void WaitFor(size_t index, double moment);
  double Copied(double free, int64_t bytes, double rate);

  // What an operation takes the device and the host, and what the step then takes at least from
  // there on where the host is.
  struct Times {
    double seconds, host, rest;
  };

  const Step step_;
  double seconds_ = 0.0;             // of the operations, without waiting for the host
  std::vector<double> starts_;       // of each where everything is kept, and the end of the last
  std::vector<Times> times_;         // of each
  std::vector<int64_t> kept_bytes_;  // at each position where everything is kept
  std::vector<int64_t> first_uses_;  // of the saved tensors
  std::vector<int32_t> by_ended_;    // saved tensors by their last use in forward, then by number

  // State of one run.
  int64_t limit_ = 0;
  std::vector<Choice> choices_;
  std::vector<int64_t> needs_;  // of each saved tensor, the position before which it is complete
  std::vector<int32_t> needed_, next_needed_;  // lists of what is needed at each position
  std::vector<int64_t> steps_;                 // changes of bytes from position to position
  std::vector<int64_t> temporary_;             // bytes that recipes add at each position
  std::vector<Movement> movements_;
  Profile bytes_;
  double least_seconds_ = 0.0;  // of the step, without waiting
  double waited_ = 0.0;         // for anything
  int64_t excess_ = 0;          // bytes above the limit at the last position
  Totals totals_;
  std::vector<double> waits_;
  double now_ = 0.0;                       // where the device is
  double out_free_ = 0.0, in_free_ = 0.0;  // ends of the last copies of each direction
  double host_ = 0.0;                      // where the host is, never later than now_
  std::vector<double> leaving_;  // end of the copy of what is not released yet; below 0: others
  int64_t leaving_count_ = 0, leaving_bytes_ = 0;
  std::vector<std::pair<double, int32_t>> ready_;  // heap of those that forward reads no more
  int64_t ready_bytes_ = 0;
  std::vector<double> arrivals_;
  std::vector<std::pair<int32_t, int32_t>> queue_;  // to fetch, with the last position to begin at
  size_t queue_begin_ = 0;
  size_t blocked_ = 0;  // position before which the next fetch does not fit
  size_t next_ended_ = 0, next_produced_ = 0;
};

}  // namespace oocdnn::network
