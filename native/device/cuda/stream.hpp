// A stream with a clock: how long its work has executed, and when each piece ran; and a lane beside
// it for work in two steps.
//
// A pair of timing events stands around a piece of work. The pairs come from a pool that grows
// until it holds as many as are ever in flight, and are read when somebody asks. Beside a busy copy
// toward the device, each pair holds a copy back to the host up for some ten microseconds, so of
// such pieces only a few are timed, and the others taken to be as fast.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "device/cuda/gpu.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

// Runs the first steps of work in two steps, ahead of the stream that runs the second. The steps
// meet in two halves of memory, of which one is filled while the other is emptied.
struct Lane {
  CUstream handle = nullptr;
  std::array<CUevent, 2> filled{}, emptied{};
  size_t turn = 0;  // the half that is filled next
};

// All calls need the GPU's context current.
class CudaStream {
 public:
  static Result<std::unique_ptr<CudaStream>> Make(const Gpu& gpu, int priority);
  // A stream of the caller's: an order of work, without a clock.
  static std::unique_ptr<CudaStream> Adopt(const Gpu& gpu, CUstream handle);
  ~CudaStream();  // waits for the work of a stream of our own
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  [[nodiscard]] CUstream handle() const { return handle_; }

  // Calls enqueue(handle()), which puts one piece of work on the stream, between two marks. The
  // piece's span, where its tag has one, is filled in when the piece is found done: by Synchronize
  // at the latest. A piece of `bytes` above 0 is one of those of which a few are timed.
  template <class Enqueue>
  Status Timed(const Tag& tag, int64_t bytes, const Enqueue& enqueue) {
    if (bytes > 0 && !IsSample(tag)) {
      OOC_TRY(enqueue(handle_));
      sampled_.bytes += static_cast<double>(bytes);
      return {};
    }
    OOC_TRY(Begin(tag, bytes));
    Status status = enqueue(handle_);
    End(status.ok());
    return status;
  }

  // Made when first asked for; it waits for whatever the stream was told to wait for.
  Result<Lane*> GetLane();

  Status Record(CUevent event);
  Status Wait(CUevent event);
  Status Synchronize();
  double BusySeconds();

 private:
  struct Marks {
    CUevent begin = nullptr, end = nullptr;
  };
  struct Piece {
    Marks marks;
    Span* span = nullptr;
    int64_t enqueued_ns = 0;
    double bytes = 0.0;  // of those of which a few are timed
  };
  // Pieces of which a few are timed: since the stream was last seen idle.
  struct Sampled {
    double bytes = 0.0, timed_bytes = 0.0, timed_seconds = 0.0;
    [[nodiscard]] double Seconds() const {
      return timed_bytes > 0 ? timed_seconds * bytes / timed_bytes : 0.0;
    }
  };

  explicit CudaStream(const Gpu& gpu) : gpu_(gpu) {}
  Status MakeLane();
  bool IsSample(const Tag& tag);
  Status Begin(const Tag& tag, int64_t bytes);
  void End(bool enqueued);
  Result<Marks> TakeMarks();
  Result<Marks> NewMarks();
  // Reads the clocks of pieces that are done, oldest first.
  void Resolve();
  void Count(const Piece& piece);
  // Finds the steady clock's time of base_; the stream must be idle.
  Status Calibrate();
  [[nodiscard]] int64_t TimeOf(CUevent event) const;

  const Gpu& gpu_;
  CUstream handle_ = nullptr;
  int priority_ = 0;
  Lane lane_;
  CUevent base_ = nullptr;
  int64_t base_ns_ = 0;
  bool adopted_ = false;
  bool spans_ = false;  // somebody asks for spans
  double busy_seconds_ = 0.0;
  Sampled sampled_;
  int64_t piece_ = 0;  // of those, since the stream was last seen idle
  Piece current_;
  std::deque<Piece> pieces_;
  std::vector<Marks> free_;
  size_t marks_ = 0;
};

}  // namespace oocdnn::cuda
