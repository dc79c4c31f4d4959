// Device: the one interface between the tile loop and what computes.
//
// A device has memory of its own (buffers), streams whose work is asynchronous and in order (but
// that copies of one direction that touch no common bytes may run beside one another), events
// between streams, copies between the caller's strided tensors and tile buffers, and
// engines that are prepared for one tile shape. The wrappers under device/wrap are Devices around
// a Device.
//
// Thread rule: one thread at a time enqueues on a Device; the work itself runs elsewhere. Any
// thread may allocate, free and pin host memory, and synchronise. Failure: a call that cannot be
// enqueued returns a Status. Work that fails later marks its stream: what is queued behind it on
// that stream is skipped (events still fire), and SynchronizeStream returns the first error and
// clears it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/location.hpp"
#include "base/status.hpp"
#include "geom/tile_op.hpp"
#include "geom/tiling.hpp"

namespace oocdnn {

// Who waits for an event most of the time; anybody may. A host sleeps while it waits where it is
// the event's use, and waits as the program has told the device otherwise (a GPU's host by default
// stays awake).
enum class EventUse { kStreams, kHost };

struct StreamTag;
struct EventTag;
using Stream = StreamTag*;
using Event = EventTag*;

// How the elements of a tile lie in its buffer. Activations (x, y) merge group and channel to one
// channel index m = g * shape[2] + c, then:
//   offset(n, m, d, h, w) = n*stride[0] + (m / block)*stride[2] + m % block
//                           + d*stride[3] + h*stride[4] + w*stride[5]
// (block 1: plain; stride[1] = shape[2] * stride[2] then). Filters use all six strides; where
// `blocks` is not empty the dimension indices are divided by each block in turn, innermost last,
// the oneDNN way. Elements between `shape` and the padded extents are zero.
struct TileLayout {
  DType dtype = DType::kFloat32;
  Dims shape{};
  Dims stride{};
  int64_t channel_block = 1;     // of the merged channel, activations only
  bool opaque = false;           // the device alone can address it; only whole-tile transfers
  const void* native = nullptr;  // the engine's own descriptor; lives as long as the Executable
  int64_t bytes = 0;
};

// A strided tensor in the six dimensions of its operand. Strides are in elements and may be
// negative (a mirrored filter). Copies take tensors in memory that the device reaches.
struct TensorView {
  void* data = nullptr;  // of element (0, 0, 0, 0, 0, 0); not used for a file
  DType dtype = DType::kFloat32;
  Dims stride{};
  Location location{};  // where it is not known, copies look

  [[nodiscard]] bool in_file() const { return location.tier == Tier::kFile; }
};
using OperandViews = std::array<TensorView, kOperands>;

// Times of one piece of work on the steady clock, filled in when it has run (where asked for).
struct Span {
  int64_t begin_ns = 0, end_ns = 0;
};

// Who asked for a piece of work: for traces, faults and hazard reports.
struct Tag {
  int64_t step = -1;
  Operand operand = Operand::kX;
  Span* span = nullptr;
};

// Memory of the device that a transfer may pass through; no other stream's transfers use it at the
// same time. Any size helps, and none is needed.
struct Bounce {
  void* data = nullptr;
  int64_t bytes = 0;
};

// A copy between a box of a tensor and a tile buffer. The part of the tile to be written is
// [tile_begin, tile_end) in box coordinates (0 .. box.extent); a fetch writes zeros to it wherever
// the box is not valid, and touches nothing else of the tile, which another stream may write
// meanwhile. A drain writes only valid elements, converted to the view's dtype.
struct Transfer {
  TensorView view;
  Operand operand = Operand::kX;
  Box box;
  Dims tile_begin{}, tile_end{};
  void* tile = nullptr;
  const TileLayout* layout = nullptr;
  Bounce bounce;
  Tag tag;
};

// A copy inside the device between two tiles of one layout: `extent` elements from
// (from, from_begin) to (to, to_begin), all in box coordinates. The ranges never overlap.
struct TileMove {
  const void* from = nullptr;
  void* to = nullptr;
  Dims from_begin{}, to_begin{}, extent{};
  Operand operand = Operand::kX;
  const TileLayout* layout = nullptr;
  Tag tag;
};

// An engine prepared for one TileOp. Immutable; Run may be called from one stream at a time. It
// must outlive the runs that were enqueued on it.
class Executable {
 public:
  virtual ~Executable() = default;
  [[nodiscard]] const std::string& engine() const { return engine_; }
  [[nodiscard]] const Properties& properties() const { return properties_; }
  [[nodiscard]] int64_t workspace_bytes() const { return workspace_bytes_; }
  // Seconds of one run, if preparing timed or estimated it; else 0.
  [[nodiscard]] double run_seconds() const { return run_seconds_; }
  // Exact layout of the tile of kX, kW or kY (kBias: the output of backward bias).
  [[nodiscard]] const TileLayout& layout(Operand operand) const { return layout_[Index(operand)]; }

 protected:
  std::string engine_;
  Properties properties_;
  int64_t workspace_bytes_ = 0;
  double run_seconds_ = 0.0;
  std::array<TileLayout, kOperands> layout_;
};

struct RunArgs {
  std::array<void*, kOperands> tile{};  // kX, kW, kY (kBias for backward bias)
  void* workspace = nullptr;
  bool accumulate = false;  // output += instead of output =
  // The row of y, on D, H and W, at which the tile begins. Filter gradients place the blocks of
  // their sums by it.
  Spatial origin{};
  Tag tag;
};

// A tile of z or of saved bits, in the type of the caller's tensor. The finishing pass writes it,
// and PoolBackward reads it.
struct PooledTile {
  void* data = nullptr;  // null: no such tile
  const TileLayout* layout = nullptr;
};

// The outputs that the finishing pass computes from finished values of y: z (see Pool), and the
// bits for backward (see Saving), whose tile begins at y's or z's first row, at a whole byte. Rows
// outside of y belong to no window. Rows of z's tile after the tensor's last row are 0, and so are
// bits outside of the tensor along W.
struct PoolOutput {
  PooledTile z, saved;
  Pool pool;
  Saving saving;
  Spatial extent{};                // of the whole y
  Spatial y_origin{}, z_origin{};  // rows at which the tiles begin; y's alone may be negative

  [[nodiscard]] bool any() const { return z.data != nullptr || saved.data != nullptr; }
};

// The pass over a finished sum, in place on its tile (see Epilogue). If there is a z, the pass
// writes z, and the tile's own values are undefined afterwards. `old` and `residual` are tiles with
// the sum's own layout; `bias` and `scale` hold one value per merged channel of the tile, dense, in
// the accumulator's type of the problem. Null where unused. A device may refuse (kUnsupported) to
// pool 16-bit sums; otherwise it finishes them in float, and rounds the outputs once.
struct FinishArgs {
  void* out = nullptr;
  Operand operand = Operand::kY;
  const TileLayout* layout = nullptr;
  const void *old = nullptr, *residual = nullptr, *bias = nullptr, *scale = nullptr;
  double alpha = 1.0, beta = 0.0;
  Epilogue epilogue;
  PoolOutput pooled;
  Tag tag;
};

// The gradient of activation and pool: a tile of dy from a tile of dz and a tile of saved bits (see
// Problem::restores). An element is the sum over the windows that contain it: dz of a maximum
// window where it is the winner, its share of an average window, and 0 where the activation is
// flat. It is rounded once, to the type of the tile. Elements that are not valid in `box` are zero.
struct PoolBackwardArgs {
  void* dy = nullptr;
  const TileLayout* layout = nullptr;
  Box box;              // of dy
  PooledTile z, saved;  // dz, with all windows that reach valid elements; and the saved bits
  Pool pool;
  Saving saving;
  Spatial extent{};        // of the whole dy
  Spatial z_origin{};      // the rows at which the tile of dz begins; may be negative
  Spatial saved_origin{};  // the same of the bits, in elements of dz or dy
  Tag tag;
};

// The passes of a normalisation, each over the elements [begin, end) of a tile of activations, and
// nothing else of it: kApply changes them, see Prologue; kSum adds them, rounded to `rounded`, to
// the statistics in the table, see SumNumber. The order in which elements of a channel are added is
// the device's own, the same in each run. Deviations are summed relative to elements of the
// channel, never as a difference of large sums: 0 where all elements are equal, and never negative.
enum class NormPass { kApply, kSum };

// `table`: an entry for each sample and channel, of index 0 of the tile; that of another is
// n * step[0] + g * step[1] + c * step[2] entries behind. For kApply scale and shift, in the
// accumulator's type of the tile's, null where there is but an activation; for kSum kSumNumbers of
// float64, all 0 before the first pass.
struct NormArgs {
  NormPass pass = NormPass::kApply;
  void* tile = nullptr;
  const TileLayout* layout = nullptr;
  Operand operand = Operand::kX;
  Dims begin{}, end{};
  void* table = nullptr;
  std::array<int64_t, 3> step{};
  Activation activation = Activation::kIdentity;
  double parameter = 0.0;
  DType rounded = DType::kFloat32;
  Tag tag;

  [[nodiscard]] bool empty() const {
    for (size_t d = 0; d < begin.size(); ++d) {
      if (begin[d] >= end[d]) return true;
    }
    return false;
  }
  [[nodiscard]] DType TableType() const {
    return pass == NormPass::kSum ? DType::kFloat64 : AccumulatorOf(layout->dtype);
  }
  // Numbers of an entry.
  [[nodiscard]] int64_t Numbers() const { return pass == NormPass::kSum ? kSumNumbers : 2; }
  // The place of the first number of the entry of a sample, group and channel of the tile.
  [[nodiscard]] int64_t EntryOf(int64_t n, int64_t g, int64_t c) const {
    return (n * step[0] + g * step[1] + c * step[2]) * Numbers();
  }
};

// A library, or kernels, that a device uses or could use: for `oocdnn info`.
struct Component {
  std::string name;
  bool available = false;
  std::string text;    // which one, or why it is not there
  std::string remedy;  // what to do about it; "" where nothing helps
};

struct Capabilities {
  std::string name;                 // "cpu", "cuda:0", ...
  std::string description;          // for people: the model and what never changes of it
  std::string driver;               // for people: its version; "" where there is none
  int64_t alignment = 64;           // of tile buffers
  int64_t tile_alignment = 16;      // of memory of the caller's that is used as a tile
  bool reads_host = false;          // Fetch and Drain reach pageable host memory directly
  bool shares_host_memory = false;  // device memory is host memory (the CPU device)
  bool shared_engines = false;      // copies and compute take turns on the same hardware
  bool blocked_tiles = true;        // copies and Finish take tiles with channel blocks
  int64_t bounce_bytes = 0;         // with which each stream that copies is at its fastest
  bool tries_engines = false;       // Prepare takes device memory for a while: TileOp::trial_limit
  std::vector<Component> components;
};

class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual const Capabilities& capabilities() const = 0;
  // Between these the thread's calls need not each prepare the thread for the device (see
  // ScopedBinding).
  virtual void Bind() {}
  virtual void Unbind() {}
  // Bytes that could be allocated now, as far as the system says.
  virtual Result<int64_t> FreeBytes() = 0;

  virtual Result<void*> Allocate(int64_t bytes) = 0;
  virtual void Free(void* buffer, int64_t bytes) = 0;
  // Host memory that copies reach at full speed (pinned where that means anything).
  virtual Result<void*> AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(void* memory, int64_t bytes) = 0;
  // Makes host memory of the caller's as good, until UnpinHost; it must live as long.
  virtual Status PinHost(void* memory, int64_t bytes) = 0;
  virtual void UnpinHost(void* memory, int64_t bytes) = 0;
  // The location of the caller's memory [memory, memory + bytes), by a look at its two ends.
  virtual Result<Location> Locate(const void* memory, int64_t bytes) = 0;

  virtual Result<Stream> CreateStream(const char* name) = 0;
  virtual void DestroyStream(Stream stream) = 0;
  // A handle for a stream of the caller's, in the device's own terms (a CUstream), to Record and
  // Wait on; DestroyStream gives back the handle alone. kUnsupported where callers have no streams;
  // Record gives it while the stream is being captured.
  virtual Result<Stream> AdoptStream(void* native) = 0;
  virtual Result<Event> CreateEvent(EventUse use) = 0;
  virtual void DestroyEvent(Event event) = 0;
  // An event that was never recorded counts as fired.
  virtual Status Record(Event event, Stream stream) = 0;
  virtual Status Wait(Stream stream, Event event) = 0;
  virtual Status Synchronize(Event event) = 0;          // the host waits
  virtual Status SynchronizeStream(Stream stream) = 0;  // and learns of errors
  // Seconds that the stream's work has been executing since its creation.
  virtual double BusySeconds(Stream stream) = 0;

  virtual Status Fetch(Stream stream, const Transfer& transfer) = 0;
  virtual Status Drain(Stream stream, const Transfer& transfer) = 0;
  virtual Status Move(Stream stream, const TileMove& move) = 0;
  virtual Status Fill(Stream stream, void* buffer, int64_t bytes, int byte) = 0;

  // In order of preference; the planner takes the first that the problem admits.
  [[nodiscard]] virtual const std::vector<EngineInfo>& engines() const = 0;
  // Prepares `engine` (an index into engines()) for `op`. kUnsupported with a reason is an answer.
  virtual Result<std::unique_ptr<Executable>> Prepare(int engine, const TileOp& op) = 0;
  virtual Status Run(Stream stream, Executable& executable, const RunArgs& args) = 0;
  virtual Status Finish(Stream stream, const FinishArgs& args) = 0;
  virtual Status PoolBackward(Stream stream, const PoolBackwardArgs& args) = 0;
  virtual Status Norm(Stream stream, const NormArgs& args) = 0;
};

// Binds the thread to the device for a scope of many calls, in which no code of the caller runs.
class ScopedBinding {
 public:
  explicit ScopedBinding(Device& device) : device_(device) { device_.Bind(); }
  ~ScopedBinding() { device_.Unbind(); }
  ScopedBinding(const ScopedBinding&) = delete;
  ScopedBinding& operator=(const ScopedBinding&) = delete;

 private:
  Device& device_;
};

}  // namespace oocdnn
