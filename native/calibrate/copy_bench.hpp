// CopyBench: what copies are timed with: memory of the caller's side, the three streams of a
// pipeline, and tiles of a convolution. Sizes are such that caches do not hide memory.
#pragma once

#include <memory>
#include <vector>

#include "base/watch.hpp"
#include "calibrate/rig.hpp"
#include "memory/owners.hpp"
#include "planner/stopwatch.hpp"

namespace oocdnn {

// The tensors that are copied: channels, columns, fewer columns, bytes of an element.
constexpr int64_t kCopyChannels = 64, kCopyWidth = 112, kCopyNarrow = kCopyWidth / 8;
constexpr int64_t kCopyElement = 4;
constexpr int64_t kCopyBytes = 41943040;            // of host memory that the largest of them fits
constexpr int kManyRepetitions = 3 * kRepetitions;  // of what other copies go on beside
constexpr int64_t kCopyRows = 1120;                 // of a copy: 32 MB of float32
static_assert(kCopyRows * kCopyWidth * kCopyChannels * kCopyElement <= kCopyBytes);

class CopyBench {
 public:
  // `shared_engines`: what copies is what computes. Takes at most `limit` bytes of the device.
  static Result<std::unique_ptr<CopyBench>> Make(Device& device, int64_t limit,
                                                 bool shared_engines);

  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] bool shared_engines() const { return shared_engines_; }
  [[nodiscard]] const OwnedStream& fetch() const { return fetch_; }
  [[nodiscard]] const OwnedStream& compute() const { return compute_; }
  [[nodiscard]] const OwnedStream& drain() const { return drain_; }

  // The caller's tensor: that is fetched from, that is drained to.
  [[nodiscard]] Host In(int64_t width, bool channels_last = false, int64_t plane_pitch = 0) const {
    return {in_.get(), width, channels_last, plane_pitch};
  }
  [[nodiscard]] Host Out(int64_t width, bool channels_last = false, int64_t plane_pitch = 0) const {
    return {out_.get(), width, channels_last, plane_pitch};
  }

  // Tiles of so many rows of so many columns; with fewer of these, more images make up for it.
  [[nodiscard]] Result<std::unique_ptr<Rig>> RigOf(int engine, int64_t rows, int64_t width,
                                                   Math math = Math::kFp32) const;
  // Of the engine that the planner would ask first. `plain`: of those whose tiles lie as the host's
  // and whose copies so take one step, where there are any.
  [[nodiscard]] Result<std::unique_ptr<Rig>> FirstRig(int64_t rows, int64_t width,
                                                      bool plain = false) const;

  // Each of so many of all of x and of all of y, alone; empty where one failed.
  [[nodiscard]] std::vector<double> Fetches(const Rig& rig, const Host& host, int runs) const;
  [[nodiscard]] std::vector<double> Drains(const Rig& rig, const Host& host, int runs) const;
  [[nodiscard]] Timing BestFetch(const Rig& rig, const Host& host) const {
    return TimingOf(Fetches(rig, host, kRepetitions));
  }
  [[nodiscard]] Timing BestDrain(const Rig& rig, const Host& host) const {
    return TimingOf(Drains(rig, host, kRepetitions));
  }

  // One of each at once, while `runs` convolutions go on where they do not run on what copies.
  struct Pair {
    Span fetched, drained;
    [[nodiscard]] double All() const;       // seconds from the first beginning to the last end
    [[nodiscard]] double Together() const;  // while both were under way
  };
  [[nodiscard]] Result<Pair> FetchAndDrain(Rig& rig, const Host& from, const Host& to,
                                           int runs = 0) const;
  // From the first beginning to the last end.
  [[nodiscard]] Timing BestOfBoth(Rig& rig, const Host& from, const Host& to) const;
  // Of a fetch and a drain that share the wire all the time; `single`: seconds of one alone.
  [[nodiscard]] Timing MiddleOfBoth(Rig& rig, const Host& from, const Host& to,
                                    double single) const;
  // Of each for itself, while the other and those convolutions go on.
  struct Each {
    Timing fetch, drain;
  };
  [[nodiscard]] Each MiddleOfEach(Rig& rig, const Host& from, const Host& to, int runs) const;

  // What is enqueued on `then` waits for what was on `first`.
  [[nodiscard]] Status InTurn(const OwnedStream& first, const OwnedStream& then) const;
  // Waits for all that was enqueued, whatever failed, because it uses memory that then goes.
  [[nodiscard]] Status Settle(Status status) const;

  // One of a chain of pieces, each of which `piece()` enqueues; of a few chains.
  template <class Piece>
  [[nodiscard]] Result<Timing> TimeChain(const Piece& piece) const {
    constexpr int kChain = 16;
    std::vector<double> chains;
    for (int i = 0; i < kRepetitions; ++i) {
      const Watch watch;
      Status status;
      for (int tile = 0; tile < kChain && status.ok(); ++tile) status = piece();
      OOC_TRY(Settle(std::move(status)));
      chains.push_back(watch.Seconds());
    }
    return Share(TimingOf(std::move(chains)), kChain);
  }

 private:
  CopyBench(Device& device, int64_t limit, bool shared_engines);
  Status MakeStreams();

  Device& device_;
  const int64_t limit_;
  const bool shared_engines_;
  const Block in_, out_;  // kCopyBytes each
  OwnedStream fetch_, compute_, drain_;
  OwnedEvent turn_;
};

}  // namespace oocdnn
