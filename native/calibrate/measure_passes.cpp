// Passes over tiles beside the convolution, of an engine's own layout: what finishes sums, without
// a pool and with one of 2 x 2 windows whose winners are saved, what restores dy from these, and
// what normalises x.
#include <array>
#include <string>
#include <vector>

#include "calibrate/copy_bench.hpp"
#include "calibrate/measure.hpp"

namespace oocdnn {
namespace {

// Of tiles of float32: 257 MB, which no cache hides, as far as there is room; and 8 MB, which take
// the host long enough where that computes.
constexpr std::array<int64_t, 3> kRows = {8960, 4480, 1120};
constexpr int64_t kHostRows = 280;
constexpr double kEnough = 20e-3;  // seconds of a few runs
constexpr int64_t kWindow = 2;

TileLayout LayoutOf(DType dtype, const Dims& shape, bool channels_last) {
  TileLayout layout;
  layout.dtype = dtype;
  layout.shape = shape;
  layout.stride = channels_last ? ChannelsLastStrides(shape) : DenseStrides(shape);
  layout.bytes = SizeOf(dtype);
  for (const int64_t extent : shape) layout.bytes *= extent;
  return layout;
}

// What lies in the second tile of x, which is as large as y: z and, behind it, what is saved.
class PassesTimed {
 public:
  PassesTimed(const CopyBench& bench, const Rig& rig, bool channels_last)
      : bench_(bench), rig_(rig), y_(rig.layout(Operand::kY)) {
    pool_.mode = PoolMode::kMax;
    pool_.window = pool_.stride = {1, kWindow, kWindow};
    saving_ = {Saved::kWinners, 3};
    Dims made = y_.shape;
    for (const int d : {4, 5}) made[d] /= kWindow;
    z_ = LayoutOf(y_.dtype, made, channels_last);
    made[5] = saving_.RowBytes(made[5]);
    saved_ = LayoutOf(DType::kByte, made, false);
  }

  void Measure(const std::string& engine, bool channels_last, Profile* profile) const {
    const auto y = static_cast<double>(y_.bytes),
               made = static_cast<double>(z_.bytes + saved_.bytes);
    const auto note = [&](const char* name, double bytes, const Timing& timing) {
      const double rate = RateOf(bytes, timing);
      if (rate == 0.0) return;  // the device refuses such tiles
      profile->SetWire(Profile::WireKey(engine, channels_last, name), rate, timing.evidence());
    };
    note("finish", 2 * y, Best([&](Stream stream, Span* span) {
           return bench_.device().Finish(stream, FinishOf(span));
         }));
    note("pool", y + made, Best([&](Stream stream, Span* span) {
           FinishArgs args = FinishOf(span);
           args.pooled = {Z(), Winners(), pool_, saving_, Extent(), {}, {}};
           return bench_.device().Finish(stream, args);
         }));
    note("restore", y + made, Best([&](Stream stream, Span* span) {
           return bench_.device().PoolBackward(stream, BackwardOf(span));
         }));
    note("normalize", 2 * rig_.bytes(Operand::kX), Best([&](Stream stream, Span* span) {
           return bench_.device().Norm(stream, NormOf(span));
         }));
  }

 private:
  template <class Pass>
  [[nodiscard]] Timing Best(const Pass& pass) const {
    const Stream stream = bench_.compute().get();
    return BestOf(bench_.device(), stream, [&](Span* span) { return pass(stream, span); }, kEnough);
  }

  [[nodiscard]] Spatial Extent() const { return {y_.shape[3], y_.shape[4], y_.shape[5]}; }
  [[nodiscard]] PooledTile Z() const { return {rig_.second_x(), &z_}; }
  [[nodiscard]] PooledTile Winners() const {
    return {static_cast<char*>(rig_.second_x()) + z_.bytes, &saved_};
  }

  [[nodiscard]] FinishArgs FinishOf(Span* span) const {
    FinishArgs args;
    args.out = rig_.tile(Operand::kY);
    args.layout = &y_;
    args.bias = rig_.tile(Operand::kW);
    args.epilogue.bias = true;
    args.epilogue.activation = Activation::kRelu;
    args.tag.span = span;
    return args;
  }

  [[nodiscard]] PoolBackwardArgs BackwardOf(Span* span) const {
    PoolBackwardArgs args;
    args.dy = rig_.tile(Operand::kY);
    args.layout = &y_;
    args.box = {{}, y_.shape, {}, y_.shape};
    args.z = Z();
    args.saved = Winners();
    args.pool = pool_;
    args.saving = saving_;
    args.extent = Extent();
    args.tag = {-1, Operand::kY, span};
    return args;
  }

  [[nodiscard]] NormArgs NormOf(Span* span) const {
    NormArgs args;
    args.tile = rig_.tile(Operand::kX);
    args.layout = &rig_.layout(Operand::kX);
    args.end = args.layout->shape;
    args.table = rig_.tile(Operand::kW);
    args.step = {args.end[1] * args.end[2], args.end[2], 1};
    args.activation = Activation::kRelu;
    args.tag.span = span;
    return args;
  }

  const CopyBench& bench_;
  const Rig& rig_;
  const TileLayout& y_;
  TileLayout z_, saved_;
  Pool pool_;
  Saving saving_;
};

bool Known(const std::string& engine, const Profile& profile) {
  return profile.wires.contains(Profile::WireKey(engine, false, "finish"));
}

// The largest tiles that there is room for; null where there is none, or the engine refuses.
std::unique_ptr<Rig> RigOf(const CopyBench& bench, int engine) {
  const bool on_host = bench.device().capabilities().shares_host_memory;
  for (const int64_t rows :
       on_host ? std::vector{kHostRows} : std::vector(kRows.begin(), kRows.end())) {
    auto rig = bench.RigOf(engine, rows, kCopyWidth);
    if (rig.ok()) return std::move(rig).value();
  }
  return nullptr;
}

}  // namespace

Status MeasurePasses(Device& device, int64_t limit, Profile* profile) {
  std::unique_ptr<CopyBench> bench;
  for (int engine = 0; engine < static_cast<int>(device.engines().size()); ++engine) {
    const EngineInfo& info = device.engines()[static_cast<size_t>(engine)];
    if ((engine > 0 && IsLastResort(info)) || Known(info.name, *profile)) continue;
    if (bench == nullptr) {
      OOC_ASSIGN(bench, CopyBench::Make(device, limit, profile->shared_engines));
    }
    const std::unique_ptr<Rig> rig = RigOf(*bench, engine);
    if (rig == nullptr) continue;
    for (const bool channels_last : {false, true}) {
      PassesTimed(*bench, *rig, channels_last).Measure(info.name, channels_last, profile);
    }
  }
  return {};
}

}  // namespace oocdnn
