#include "device/cuda/stream.hpp"

#include <algorithm>
#include <utility>

#include "base/watch.hpp"

namespace oocdnn::cuda {
namespace {

constexpr size_t kMostMarks = 512;
// Of a sort, so that short calls are timed well; then an odd number, because operands take turns.
constexpr int64_t kSampledFirst = 2, kSampledEvery = 31;
constexpr size_t kMostSorts = 16;
// Event times are floats of milliseconds since base_: after this long they are worth a microsecond.
constexpr int64_t kStale = 10'000'000'000;

}  // namespace

Result<std::unique_ptr<CudaStream>> CudaStream::Make(const Gpu& gpu, int priority,
                                                     BorrowedLinks links) {
  std::unique_ptr<CudaStream> stream(new CudaStream(gpu));
  stream->links_ = std::move(links);
  stream->priority_ = priority;
  OOC_CUDA(gpu.driver(), cuStreamCreateWithPriority, &stream->handle_, CU_STREAM_NON_BLOCKING,
           priority);
  OOC_CUDA(gpu.driver(), cuEventCreate, &stream->base_, CU_EVENT_DEFAULT);
  OOC_TRY(stream->Calibrate());
  return stream;
}

std::unique_ptr<CudaStream> CudaStream::Adopt(const Gpu& gpu, CUstream handle) {
  std::unique_ptr<CudaStream> stream(new CudaStream(gpu));
  stream->handle_ = handle;
  stream->adopted_ = true;
  return stream;
}

CudaStream::~CudaStream() {
  if (adopted_) return;
  const Driver& driver = gpu_.driver();
  paths_.reset();
  for (CUstream stream : {lane_.handle, handle_}) {
    if (stream != nullptr) driver.cuStreamSynchronize(stream);
  }
  for (const Piece& piece : pieces_) free_.push_back(piece.marks);
  for (const Marks& marks : free_) {
    driver.cuEventDestroy(marks.begin);
    driver.cuEventDestroy(marks.end);
  }
  for (const auto* events : {&lane_.filled, &lane_.emptied}) {
    for (CUevent event : *events) {
      if (event != nullptr) driver.cuEventDestroy(event);
    }
  }
  if (base_ != nullptr) driver.cuEventDestroy(base_);
  for (CUstream stream : {lane_.handle, handle_}) {
    if (stream != nullptr) driver.cuStreamDestroy(stream);
  }
}

// What the stream was told to wait for so far, the lane waits for by an event behind it. After a
// failure the destructor finds what was made.
Status CudaStream::MakeLane() {
  const Driver& driver = gpu_.driver();
  for (auto* events : {&lane_.filled, &lane_.emptied}) {
    for (CUevent& event : *events) {
      if (event == nullptr) OOC_CUDA(driver, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
    }
  }
  CUstream handle = nullptr;
  OOC_CUDA(driver, cuStreamCreateWithPriority, &handle, CU_STREAM_NON_BLOCKING, priority_);
  lane_.handle = handle;
  OOC_CUDA(driver, cuEventRecord, lane_.filled[0], handle_);
  OOC_CUDA(driver, cuStreamWaitEvent, handle, lane_.filled[0], 0);
  return {};
}

Result<Lane*> CudaStream::GetLane() {
  if (lane_.handle == nullptr) OOC_TRY(MakeLane());
  return &lane_;
}

Result<PeerPaths*> CudaStream::GetPaths() {
  if (paths_ == nullptr && !links_.peers.empty()) {
    OOC_ASSIGN(paths_, PeerPaths::Make(gpu_.context(), links_, handle_, priority_));
  }
  return paths_.get();
}

// The event lies between two readings of the clock, some ten microseconds apart.
Status CudaStream::Calibrate() {
  constexpr int kTries = 4;
  int64_t before = 0, after = 0;
  for (int i = 0; i < kTries; ++i) {  // the first wake the GPU, the last counts
    before = Now();
    OOC_CUDA(gpu_.driver(), cuEventRecord, base_, handle_);
    OOC_CUDA(gpu_.driver(), cuEventSynchronize, base_);
    after = Now();
  }
  base_ns_ = before + (after - before) / 2;
  return {};
}

Result<CudaStream::Marks> CudaStream::NewMarks() {
  Marks marks;
  OOC_CUDA(gpu_.driver(), cuEventCreate, &marks.begin, CU_EVENT_DEFAULT);
  Status second = gpu_.driver().Check(gpu_.driver().cuEventCreate(&marks.end, CU_EVENT_DEFAULT),
                                      "cuEventCreate");
  if (!second.ok()) {
    gpu_.driver().cuEventDestroy(marks.begin);
    return second;
  }
  ++marks_;
  return marks;
}

// A stream that is hundreds of pieces behind makes its caller wait for the oldest.
Result<CudaStream::Marks> CudaStream::TakeMarks() {
  if (free_.empty()) Resolve();
  if (free_.empty() && marks_ < kMostMarks) return NewMarks();
  if (free_.empty()) {
    OOC_CUDA(gpu_.driver(), cuEventSynchronize, pieces_.front().marks.end);
    Resolve();
  }
  if (free_.empty()) return Error(Code::kInternal, "a stream has lost its timing events");
  const Marks marks = free_.back();
  free_.pop_back();
  return marks;
}

// A stream that is never seen idle may meet any number of executables. From some on they count as
// one.
size_t CudaStream::BusyOf(const Sort& sort) {
  const auto find = [&](const Sort& wanted) {
    const auto found = std::find_if(busy_.begin(), busy_.end(),
                                    [&](const Busy& busy) { return busy.sort == wanted; });
    return static_cast<size_t>(found - busy_.begin());
  };
  const size_t own = find(sort);
  if (own < busy_.size()) return own;
  const Sort meant = busy_.size() < kMostSorts ? sort : Sort{sort.kind};
  const size_t at = find(meant);
  if (at == busy_.size()) busy_.emplace_back().sort = meant;
  return at;
}

bool CudaStream::IsSample(const Tag& tag, size_t busy) {
  const int64_t piece = busy_[busy].pieces++;
  return tag.span != nullptr || piece < kSampledFirst || piece % kSampledEvery == 0;
}

Status CudaStream::Begin(const Tag& tag, size_t busy, int64_t weight) {
  OOC_ASSIGN(current_.marks, TakeMarks());
  current_.span = tag.span;
  current_.enqueued_ns = 0;
  current_.busy = busy;
  current_.weight = static_cast<double>(weight);
  if (tag.span != nullptr) {
    spans_ = true;
    current_.enqueued_ns = Now();
  }
  Status recorded = RecordBehind(current_.marks.begin);
  if (!recorded.ok()) free_.push_back(current_.marks);
  return recorded;
}

void CudaStream::End(bool enqueued) {
  if (enqueued && RecordBehind(current_.marks.end).ok()) {
    pieces_.push_back(current_);
  } else {
    free_.push_back(current_.marks);
  }
}

int64_t CudaStream::TimeOf(CUevent event) const {
  float milliseconds = 0.0f;
  if (gpu_.driver().cuEventElapsedTime(&milliseconds, base_, event) != CUDA_SUCCESS) return 0;
  return base_ns_ + static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
}

// The two clocks agree to a few microseconds, but a piece never began before it was enqueued nor
// ended after it was found done.
void CudaStream::Count(const Piece& piece) {
  float milliseconds = 0.0f;
  if (gpu_.driver().cuEventElapsedTime(&milliseconds, piece.marks.begin, piece.marks.end) ==
      CUDA_SUCCESS) {
    Busy& busy = busy_[piece.busy];
    busy.weight += piece.weight;
    busy.timed_weight += piece.weight;
    busy.timed_seconds += static_cast<double>(milliseconds) * 1e-3;
  }
  if (piece.span == nullptr) return;
  const int64_t now = Now();
  piece.span->begin_ns = std::clamp(TimeOf(piece.marks.begin), piece.enqueued_ns, now);
  piece.span->end_ns = std::clamp(TimeOf(piece.marks.end), piece.span->begin_ns, now);
}

void CudaStream::Resolve() {
  while (!pieces_.empty() &&
         gpu_.driver().cuEventQuery(pieces_.front().marks.end) != CUDA_ERROR_NOT_READY) {
    Count(pieces_.front());
    free_.push_back(pieces_.front().marks);
    pieces_.pop_front();
  }
}

// Recorded in a stream that is being captured, an event would draw our own streams into the graph.
Status CudaStream::Record(CUevent event) {
  if (adopted_) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    OOC_CUDA(gpu_.driver(), cuStreamIsCapturing, handle_, &status);
    if (status != CU_STREAM_CAPTURE_STATUS_NONE) {
      return Error(Code::kUnsupported,
                   "the stream is being captured, and out-of-core work cannot go into a CUDA "
                   "graph; call outside of the capture");
    }
  }
  return RecordBehind(event);
}

Status CudaStream::RecordBehind(CUevent event) {
  if (paths_ != nullptr) return paths_->Record(event);
  OOC_CUDA(gpu_.driver(), cuEventRecord, event, handle_);
  return {};
}

Status CudaStream::Wait(CUevent event) {
  OOC_CUDA(gpu_.driver(), cuStreamWaitEvent, handle_, event, 0);
  if (lane_.handle != nullptr) OOC_CUDA(gpu_.driver(), cuStreamWaitEvent, lane_.handle, event, 0);
  return paths_ == nullptr ? Status() : paths_->Wait(event);
}

// The lane is done when the stream is, unless a second step could not be enqueued.
Status CudaStream::Synchronize() {
  Status status;
  for (CUstream stream : {lane_.handle, handle_}) {
    if (stream == nullptr && !adopted_) continue;
    const CUresult result = gpu_.driver().cuStreamSynchronize(stream);
    status.KeepFirst(gpu_.driver().Check(result, "cuStreamSynchronize"));
  }
  if (paths_ != nullptr) status.KeepFirst(paths_->Synchronize());
  OOC_TRY(std::move(status));
  Resolve();
  for (const Busy& busy : busy_) busy_seconds_ += busy.Seconds();
  busy_.clear();
  if (spans_ && Now() - base_ns_ > kStale) OOC_TRY(Calibrate());
  return {};
}

double CudaStream::BusySeconds() {
  Resolve();
  double seconds = busy_seconds_;
  for (const Busy& busy : busy_) seconds += busy.Seconds();
  return seconds;
}

}  // namespace oocdnn::cuda
