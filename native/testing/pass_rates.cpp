// How long passes over tiles beside the convolution take with nothing beside them, and a copy of as
// many bytes inside the device.
#include <algorithm>
#include <array>
#include <string>

#include "planner/stopwatch.hpp"
#include "testing/conformance_rig.hpp"
#include "testing/device_spec.hpp"
#include "testing/export.hpp"

namespace oocdnn::testing {
namespace {

constexpr int64_t kChannels = 64, kExtent = 224;

// One memory order of y, and one of z, in one type.
struct Kind {
  DType dtype;
  bool y_last, z_last;

  [[nodiscard]] std::string Name() const {
    const char* const order = y_last ? (z_last ? "nhwc" : "nhwc-nchw") : "nchw";
    return std::string(order) + " " + oocdnn::Name(dtype);
  }
};
constexpr Kind kKinds[] = {{DType::kFloat32, false, false},
                           {DType::kFloat32, true, true},
                           {DType::kFloat32, true, false},
                           {DType::kBFloat16, false, false},
                           {DType::kBFloat16, true, true}};

struct Pass {
  const char* name;
  PoolMode mode;  // over windows of 2 x 2
  bool saves, restores;

  [[nodiscard]] bool InPlace() const { return mode == PoolMode::kNone && !saves; }
};
constexpr Pass kPasses[] = {
    {"bias-relu", PoolMode::kNone, false, false},    {"max-2", PoolMode::kMax, false, false},
    {"max-2-saved", PoolMode::kMax, true, false},    {"dy-relu-max-2", PoolMode::kMax, true, true},
    {"average-2", PoolMode::kAverage, false, false}, {"dy-relu", PoolMode::kNone, true, true}};

using Blocks = std::array<void*, 4>;  // of y, z, what is saved, and the bias

// The tiles of one kind and pass, in memory that is there for all of them.
class Timed {
 public:
  Timed(Rig& rig, const Blocks& memory, int64_t bytes, const Kind& kind, const Pass& pass)
      : rig_(rig), memory_(memory), pass_(pass) {
    const int64_t image = kChannels * kExtent * kExtent * SizeOf(kind.dtype);
    const Dims shape{std::max<int64_t>(bytes / image, 1), 1, kChannels, 1, kExtent, kExtent};
    y_ = PlainLayout(kind.dtype, shape, kind.y_last);
    problem_.saves = pass.saves;
    problem_.dtype = kind.dtype;
    problem_.epilogue.bias = true;
    problem_.epilogue.activation = Activation::kRelu;
    problem_.pool.mode = pass.mode;
    const int64_t window = problem_.pool.pools() ? 2 : 1;
    problem_.pool.window = problem_.pool.stride = {1, window, window};
    saving_ = problem_.saving();
    Dims made = shape;
    for (const int d : {4, 5}) made[d] /= window;
    z_ = PlainLayout(kind.dtype, made, kind.z_last);
    made[5] = saving_.RowBytes(made[5]);
    saved_ = PlainLayout(DType::kByte, made);
  }

  // Read and written.
  [[nodiscard]] int64_t Bytes() const {
    if (pass_.InPlace()) return 2 * y_.bytes;
    return y_.bytes + z_.bytes + (pass_.saves ? saved_.bytes : 0);
  }

  [[nodiscard]] Timing Best(Stream stream) const {
    Device& device = rig_.device();
    // All are alive, and of a window the first.
    const int bits = pass_.mode == PoolMode::kNone ? 0xff : 0;
    if (pass_.restores && !device.Fill(stream, memory_[2], saved_.bytes, bits).ok()) return {};
    return BestOf(device, stream, [&](Span* span) {
      return pass_.restores ? device.PoolBackward(stream, BackwardOf(span))
                            : device.Finish(stream, FinishOf(span));
    });
  }

 private:
  [[nodiscard]] Spatial Extent() const { return {y_.shape[3], y_.shape[4], y_.shape[5]}; }
  [[nodiscard]] PooledTile Z() const { return {memory_[1], &z_}; }
  [[nodiscard]] PooledTile Saved() const {
    return pass_.saves ? PooledTile{memory_[2], &saved_} : PooledTile{};
  }

  [[nodiscard]] FinishArgs FinishOf(Span* span) const {
    FinishArgs args;
    args.out = memory_[0];
    args.layout = &y_;
    args.bias = memory_[3];
    args.epilogue = problem_.epilogue;
    if (!pass_.InPlace()) args.pooled = {Z(), Saved(), problem_.pool, saving_, Extent(), {}, {}};
    args.tag.span = span;
    return args;
  }

  [[nodiscard]] PoolBackwardArgs BackwardOf(Span* span) const {
    PoolBackwardArgs args;
    args.dy = memory_[0];
    args.layout = &y_;
    args.box = {{}, y_.shape, {}, y_.shape};
    args.z = Z();
    args.saved = Saved();
    args.pool = problem_.pool;
    args.saving = saving_;
    args.extent = Extent();
    args.tag = {-1, Operand::kY, span};
    return args;
  }

  Rig& rig_;
  const Blocks memory_;
  const Pass pass_;
  Problem problem_;
  Saving saving_;
  TileLayout y_, z_, saved_;
};

std::string Line(const std::string& name, int64_t bytes, const Timing& timing) {
  return Format("%s %.6g\n", name.c_str(), RateOf(static_cast<double>(bytes), timing));
}

Timing BestCopy(Rig& rig, Stream stream, const Blocks& memory, const TileLayout& layout) {
  return BestOf(rig.device(), stream, [&](Span* span) {
    TileMove move{memory[0], memory[1], {}, {}, layout.shape, Operand::kY, &layout, {}};
    move.tag.span = span;
    return rig.device().Move(stream, move);
  });
}

Status Rates(Device& device, int64_t bytes, std::string* lines) {
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  Blocks memory{};
  for (void*& block : memory) {
    OOC_ASSIGN(block, rig.NewBuffer(bytes));
    OOC_TRY(device.Fill(stream, block, bytes, 0x3f));  // numbers of either type
  }
  const TileLayout plain = PlainLayout(DType::kByte, {1, 1, 1, 1, 1, bytes});
  *lines += Line("copy all byte", 2 * bytes, BestCopy(rig, stream, memory, plain));
  for (const Kind& kind : kKinds) {
    for (const Pass& pass : kPasses) {
      if (pass.InPlace() && kind.y_last != kind.z_last) continue;
      const Timed timed(rig, memory, bytes, kind, pass);
      *lines += Line(std::string(pass.name) + " " + kind.Name(), timed.Bytes(), timed.Best(stream));
    }
  }
  return {};
}

}  // namespace
}  // namespace oocdnn::testing

// One line each: the pass, the order of y (and of z, where that is another), the type, and bytes
// read and written per second, 0 where the device refuses. Tiles of y of at most so many bytes.
OOC_EXPORT int oocdnn_testing_pass_rates(const char* device_spec, int64_t bytes, char* text,
                                         int64_t capacity) {
  const auto made = oocdnn::testing::MakeDevice(device_spec);
  if (!made.ok()) return oocdnn::testing::Answer(made.status(), text, capacity);
  std::string lines;
  const oocdnn::Status status = oocdnn::testing::Rates(*made.value().device, bytes, &lines);
  if (!status.ok()) return oocdnn::testing::Answer(status, text, capacity);
  oocdnn::testing::CopyText(lines, text, capacity);
  return 0;
}
