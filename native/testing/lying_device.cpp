// Each override tells at most a few of the lies. Lies about results wait for the work and then
// change the output in place.
#include "testing/lying_device.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "device/wrap/forwarding.hpp"
#include "testing/conformance_reference.hpp"

namespace oocdnn::testing {
namespace {

constexpr std::array<const char*, kLies> kNames{
    "exact",     "invariant",    "deterministic", "nan_local",   "accumulate", "zero_fill",
    "sub_range", "last_element", "move",          "fill",        "bias",       "old",
    "wait",      "record",       "error",         "error_stays", "span",       "busy",
    "alignment", "limitless",    "reason",        "layout",      "part",       "written"};

// An executable that remembers which of its tiles is the output.
class LyingExecutable final : public Executable {
 public:
  LyingExecutable(std::unique_ptr<Executable> inner, Direction direction, Lie lie)
      : inner_(std::move(inner)), output_(OutputOf(direction)) {
    engine_ = inner_->engine();
    properties_ = inner_->properties();
    workspace_bytes_ = inner_->workspace_bytes();
    run_seconds_ = inner_->run_seconds();
    for (int i = 0; i < kOperands; ++i) layout_[i] = inner_->layout(static_cast<Operand>(i));
    if (lie == Lie::kLayout) layout_[Index(output_)].dtype = DType::kFloat64;
  }
  [[nodiscard]] Executable& inner() const { return *inner_; }
  [[nodiscard]] Operand output() const { return output_; }

 private:
  std::unique_ptr<Executable> inner_;
  Operand output_;
};

class LyingDevice final : public ForwardingDevice {
 public:
  LyingDevice(std::unique_ptr<Device> inner, Lie lie)
      : ForwardingDevice(std::move(inner)), lie_(lie) {}

  Result<void*> Allocate(int64_t bytes) override;
  void Free(void* buffer, int64_t bytes) override;

  Status Record(Event event, Stream stream) override {
    return Lies(Lie::kRecord) ? Status() : inner().Record(event, stream);
  }
  Status Wait(Stream stream, Event event) override {
    return Lies(Lie::kWait) ? Status() : inner().Wait(stream, event);
  }
  Status SynchronizeStream(Stream stream) override;
  double BusySeconds(Stream stream) override {
    return Lies(Lie::kBusy) ? 0.0 : inner().BusySeconds(stream);
  }

  Status Fetch(Stream stream, const Transfer& transfer) override;
  Status Drain(Stream stream, const Transfer& transfer) override;
  Status Move(Stream stream, const TileMove& move) override {
    return Lies(Lie::kMove) ? Status() : inner().Move(stream, move);
  }
  Status Fill(Stream stream, void* buffer, int64_t bytes, int byte) override {
    return inner().Fill(stream, buffer, Lies(Lie::kFill) ? bytes - 1 : bytes, byte);
  }
  Result<std::unique_ptr<Executable>> Prepare(int engine, const TileOp& op) override;
  Status Run(Stream stream, Executable& executable, const RunArgs& args) override;
  Status Finish(Stream stream, const FinishArgs& args) override;
  Status Norm(Stream stream, const NormArgs& args) override;

 private:
  [[nodiscard]] bool Lies(Lie lie) const { return lie_ == lie; }
  [[nodiscard]] bool SpoilsResults() const { return lie_ <= Lie::kNanLocal; }
  void Spoil(const TileLayout& layout, void* out);

  const Lie lie_;
  unsigned runs_ = 0;
  Status kept_;
};

Result<void*> LyingDevice::Allocate(int64_t bytes) {
  if (Lies(Lie::kAlignment)) {
    OOC_ASSIGN(void* buffer, inner().Allocate(bytes + 8));
    return static_cast<void*>(static_cast<char*>(buffer) + 8);
  }
  if (Lies(Lie::kLimitless) && bytes > (int64_t{1} << 45)) return inner().Allocate(64);
  return inner().Allocate(bytes);
}

void LyingDevice::Free(void* buffer, int64_t bytes) {
  if (Lies(Lie::kAlignment)) {
    return inner().Free(static_cast<char*>(buffer) - 8, bytes + 8);
  }
  inner().Free(buffer, Lies(Lie::kLimitless) && bytes > (int64_t{1} << 45) ? 64 : bytes);
}

Status LyingDevice::SynchronizeStream(Stream stream) {
  Status status = inner().SynchronizeStream(stream);
  if (Lies(Lie::kError)) return {};
  if (!Lies(Lie::kErrorStays)) return status;
  if (!status.ok()) kept_ = std::move(status);
  return kept_;
}

Status LyingDevice::Fetch(Stream stream, const Transfer& transfer) {
  Transfer told = transfer;
  if (Lies(Lie::kSpan)) told.tag.span = nullptr;
  const Dims& extent = transfer.box.extent;
  for (size_t d = 0; d < extent.size(); ++d) {
    const Box& box = transfer.box;
    if (Lies(Lie::kZeroFill)) {
      told.tile_begin[d] = std::max(told.tile_begin[d], box.valid_begin[d] - box.origin[d]);
      told.tile_end[d] = std::min(told.tile_end[d], box.valid_end[d] - box.origin[d]);
      if (told.tile_begin[d] >= told.tile_end[d]) return {};
    }
    if (Lies(Lie::kSubRange)) {
      told.tile_begin[d] = 0;
      told.tile_end[d] = extent[d];
    }
  }
  return inner().Fetch(stream, told);
}

Status LyingDevice::Drain(Stream stream, const Transfer& transfer) {
  Transfer told = transfer;
  if (Lies(Lie::kLastElement) && told.box.valid_end[5] - told.box.valid_begin[5] > 1) {
    --told.box.valid_end[5];
  }
  return inner().Drain(stream, told);
}

Result<std::unique_ptr<Executable>> LyingDevice::Prepare(int engine, const TileOp& op) {
  Result<std::unique_ptr<Executable>> executable = inner().Prepare(engine, op);
  if (Lies(Lie::kReason) && op.direction == Direction::kBackwardBias) {
    return Status(Code::kUnsupported, "");
  }
  if (!executable.ok()) return std::move(executable).status();
  return std::unique_ptr<Executable>(
      std::make_unique<LyingExecutable>(std::move(executable).value(), op.direction, lie_));
}

// Changes what an output tile of f32 or f64 holds; `layout.bytes` stands for the tile's size.
void LyingDevice::Spoil(const TileLayout& layout, void* out) {
  if (layout.dtype == DType::kFloat64 && layout.bytes >= 8) {
    auto* const wide = static_cast<double*>(out);
    TileLayout narrow = layout;
    narrow.dtype = DType::kFloat32;
    narrow.bytes /= 2;
    std::vector<float> values(wide, wide + layout.bytes / 8);
    Spoil(narrow, values.data());
    std::copy(values.begin(), values.end(), wide);
    return;
  }
  if (layout.dtype != DType::kFloat32 || layout.bytes < 8) return;
  auto* const values = static_cast<float*>(out);
  const int64_t count = layout.bytes / 4;
  if (Lies(Lie::kNanLocal)) {
    const auto is_nan = [](float v) { return v != v; };
    if (!std::any_of(values, values + count, is_nan)) return;
    float* const first = std::find_if_not(values, values + count, is_nan);
    if (first != values + count) *first = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  unsigned bits = 1;
  if (Lies(Lie::kInvariant)) bits = static_cast<unsigned>(layout.bytes / 4) & 0xffu;
  if (Lies(Lie::kDeterministic)) bits = ++runs_ & 0xffu;
  unsigned element = 0;
  std::memcpy(&element, values, sizeof element);
  element ^= bits;
  std::memcpy(values, &element, sizeof element);
}

Status LyingDevice::Run(Stream stream, Executable& executable, const RunArgs& args) {
  auto& lying = static_cast<LyingExecutable&>(executable);
  RunArgs told = args;
  if (Lies(Lie::kAccumulate)) told.accumulate = false;
  if (Lies(Lie::kSpan)) told.tag.span = nullptr;
  OOC_TRY(inner().Run(stream, lying.inner(), told));
  if (!SpoilsResults()) return {};
  OOC_TRY(inner().SynchronizeStream(stream));
  Spoil(lying.layout(lying.output()), args.tile[Index(lying.output())]);
  return {};
}

Status LyingDevice::Finish(Stream stream, const FinishArgs& args) {
  FinishArgs told = args;
  if (Lies(Lie::kBias)) told.epilogue.bias = false;
  if (Lies(Lie::kOld) && args.old != nullptr && args.beta == 0.0) told.beta = 1e-30;
  return inner().Finish(stream, told);
}

Status LyingDevice::Norm(Stream stream, const NormArgs& args) {
  NormArgs told = args;
  if (Lies(Lie::kPart)) {
    told.begin = {};
    told.end = args.layout->shape;
  }
  if (Lies(Lie::kWritten)) told.rounded = args.layout->dtype;
  return inner().Norm(stream, told);
}

}  // namespace

const char* Name(Lie lie) { return kNames[static_cast<size_t>(lie)]; }

std::unique_ptr<Device> MakeLyingDevice(std::unique_ptr<Device> inner, Lie lie) {
  return std::make_unique<LyingDevice>(std::move(inner), lie);
}

}  // namespace oocdnn::testing
