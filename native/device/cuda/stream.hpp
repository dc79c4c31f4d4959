// A stream with a clock: how long its work has executed, and when each piece ran; and a lane beside
// it for work in two steps.
//
// A pair of timing events stands around a piece of work. The pairs come from a pool that grows
// until it holds as many as are ever in flight, and are read when somebody asks. While the wire is
// busy, each time stamp holds up what follows it by some fifteen microseconds, so only a few pieces
// of a sort are timed, and the others taken to be as fast. With spans asked for, all are.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "device/cuda/gpu.hpp"
#include "device/cuda/peer_paths.hpp"
#include "device/device.hpp"

namespace oocdnn::cuda {

// Runs the first steps of work in two steps, ahead of the stream that runs the second. The steps
// meet in parts of memory that are filled and emptied in turns: as many as keep the first step busy
// while the second waits for multiprocessors, which a large convolution leaves late.
struct Lane {
  static constexpr size_t kParts = 4;
  CUstream handle = nullptr;
  std::array<CUevent, kParts> filled{}, emptied{};
  size_t turn = 0;  // the part that is filled next
};

// Pieces of work that take time in proportion to their weights: of one kind, and of one executable
// where that is what runs (a short tile is computed at another pace than a usual one).
enum class Kind : uint8_t { kCopy, kMove, kRun, kFinish };
struct Sort {
  Kind kind = Kind::kCopy;
  const void* executable = nullptr;
  bool operator==(const Sort&) const = default;
};

// All calls need the GPU's context current.
class CudaStream {
 public:
  // `links`: over which its copies between host memory and the GPU may go, too.
  static Result<std::unique_ptr<CudaStream>> Make(const Gpu& gpu, int priority,
                                                  BorrowedLinks links);
  // A stream of the caller's: an order of work, without a clock.
  static std::unique_ptr<CudaStream> Adopt(const Gpu& gpu, CUstream handle);
  ~CudaStream();  // waits for the work of a stream of our own
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  [[nodiscard]] CUstream handle() const { return handle_; }

  // Calls enqueue(handle()), which puts one piece of work on the stream, between two marks if it is
  // timed. The piece's span, where its tag has one, is filled in when the piece is found done: by
  // Synchronize at the latest.
  template <class Enqueue>
  Status Timed(const Tag& tag, const Sort& sort, int64_t weight, const Enqueue& enqueue) {
    const size_t busy = BusyOf(sort);
    if (!IsSample(tag, busy)) {
      OOC_TRY(enqueue(handle_));
      busy_[busy].weight += static_cast<double>(weight);
      return {};
    }
    OOC_TRY(Begin(tag, busy, weight));
    Status status = enqueue(handle_);
    End(status.ok());
    return status;
  }

  // Made when first asked for; it waits for whatever the stream was told to wait for.
  Result<Lane*> GetLane();
  // The same; null where no links are borrowed.
  Result<PeerPaths*> GetPaths();
  // The direction of the next copies. After a change of direction, copies wait for the earlier
  // ones.
  Status Turn(CopyDirection direction) {
    return std::exchange(direction_, direction) == direction ? Status() : Settle();
  }
  // Work that is no copy between host memory and the GPU is to be enqueued.
  Status Settle() { return paths_ == nullptr ? Status() : paths_->Settle(); }

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
    size_t busy = 0;  // in busy_
    double weight = 0.0;
  };
  // Pieces of one sort since the stream was last seen idle.
  struct Busy {
    Sort sort;
    int64_t pieces = 0;
    double weight = 0.0, timed_weight = 0.0, timed_seconds = 0.0;
    [[nodiscard]] double Seconds() const {
      return timed_weight > 0 ? timed_seconds * weight / timed_weight : 0.0;
    }
  };

  explicit CudaStream(const Gpu& gpu) : gpu_(gpu) {}
  Status MakeLane();
  Status RecordBehind(CUevent event);  // all that was enqueued
  size_t BusyOf(const Sort& sort);
  bool IsSample(const Tag& tag, size_t busy);
  Status Begin(const Tag& tag, size_t busy, int64_t weight);
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
  BorrowedLinks links_;
  std::unique_ptr<PeerPaths> paths_;
  std::optional<CopyDirection> direction_;  // of the latest copies
  CUevent base_ = nullptr;
  int64_t base_ns_ = 0;
  bool adopted_ = false;
  bool spans_ = false;         // somebody asks for spans
  double busy_seconds_ = 0.0;  // until the stream was last seen idle
  std::vector<Busy> busy_;     // of the sorts since
  Piece current_;
  std::deque<Piece> pieces_;
  std::vector<Marks> free_;
  size_t marks_ = 0;
};

}  // namespace oocdnn::cuda
