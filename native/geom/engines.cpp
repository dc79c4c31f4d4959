#include "geom/engines.hpp"

#include <algorithm>

namespace oocdnn {
namespace {

constexpr Properties kAll{true, true, true, true};

// cuDNN's bits depend on the tile's shape. In gradients of the input some of its kernels leave out
// the padding that a filter's NaN meets, and others multiply zeros between strided elements by it.
EngineInfo Cudnn(const char* name, bool channels_last) {
  EngineInfo info;
  info.name = name;
  info.properties.exact = info.properties.deterministic = true;
  info.symmetric_padding = info.short_tiles = true;
  info.channels_last = info.finishes = channels_last;
  info.channels_at_once = 128;  // of the blocks that tensor cores work on
  return info;
}

EngineInfo OneDnn() {
  EngineInfo info;
  info.name = "onednn";
  info.properties.exact = true;          // direct and matrix algorithms only, no Winograd
  info.properties.deterministic = true;  // at one number of threads
  info.symmetric_padding = true;
  info.blocks_channels = info.short_tiles = true;
  return info;
}

// Of this project itself.
EngineInfo Own(const char* name, bool symmetric_padding) {
  EngineInfo info;
  info.name = name;
  info.properties = kAll;
  info.wide_sums = true;
  info.symmetric_padding = symmetric_padding;
  return info;
}

EngineInfo Direct() {
  EngineInfo info = Own("direct", false);
  info.direct_sums = true;
  return info;
}

EngineInfo Depthwise() {
  EngineInfo info = Own("depthwise", true);
  info.direct_sums = info.depthwise = info.short_tiles = true;
  return info;
}

// Its sums are in an order of its own, and filter gradients are cut by their tiles.
EngineInfo Fp32x3() {
  EngineInfo info = Own("fp32x3", true);
  info.properties.invariant = info.wide_sums = false;
  info.channels_last = info.splits = true;
  info.channels_at_once = 64;
  return info;
}

bool ServesSplit(Direction direction, DType dtype, Math math, const ConvShape& shape) {
  if (math != Math::kFp32x3 && math != Math::kFp32Fast) return false;
  if (dtype != DType::kFloat32 || direction == Direction::kBackwardBias) return false;
  const bool strided = std::any_of(shape.stride.begin(), shape.stride.end(),
                                   [](int64_t stride) { return stride != 1; });
  if (strided && direction == Direction::kBackwardData) return false;
  return TermsOf(direction, shape) >= kLeastSplitTerms;
}

}  // namespace

const std::vector<EngineInfo>& KnownEngines() {
  static const std::vector<EngineInfo> table{
      Depthwise(), Fp32x3(), Cudnn("cudnn-nhwc", true), Cudnn("cudnn-nchw", false),
      OneDnn(),    Direct(), Own("reference", true)};
  return table;
}

const EngineInfo& EngineNamed(std::string_view name) {
  const std::vector<EngineInfo>& known = KnownEngines();
  return *std::find_if(known.begin(), known.end(),
                       [&](const EngineInfo& info) { return info.name == name; });
}

int64_t TermsOf(Direction direction, const ConvShape& shape) {
  switch (direction) {
    case Direction::kForward: return shape.c * shape.Taps();
    case Direction::kBackwardData: return shape.k * shape.Taps();
    default: return shape.n * shape.out[0] * shape.out[1] * shape.out[2];
  }
}

bool HasSingleInputs(const ConvShape& shape) {
  return shape.c == 1 && shape.k >= 1 && shape.k <= kMostMultiplier;
}

bool Serves(const EngineInfo& engine, Direction direction, DType dtype, Math math,
            const ConvShape& shape) {
  if (engine.splits) return ServesSplit(direction, dtype, math, shape);
  return !engine.depthwise || (HasSingleInputs(shape) && direction != Direction::kBackwardBias);
}

bool Serves(const EngineInfo& engine, const Problem& problem) {
  return Serves(engine, problem.direction, problem.dtype, problem.math, problem.shape);
}

Math MathOf(std::string_view engine, Math math) {
  if (math != Math::kFp32x3 && math != Math::kFp32Fast) return math;
  if (engine == "fp32x3") return Math::kFp32x3;
  const bool transforms = math == Math::kFp32Fast && engine.starts_with("cudnn");
  return transforms ? math : Math::kFp32;
}

bool Finishes(const EngineInfo& engine, const Problem& problem) {
  const Epilogue& epilogue = problem.epilogue;
  const bool known = epilogue.activation == Activation::kIdentity ||
                     epilogue.activation == Activation::kRelu ||
                     epilogue.activation == Activation::kClippedRelu;
  const bool plain = !epilogue.scale && !epilogue.residual && problem.alpha == 1.0 &&
                     problem.beta == 0.0 && !problem.saves && !problem.sums;
  const bool pools = problem.pool.pools() && problem.pool.mode != PoolMode::kMax;
  const ConvShape& shape = problem.shape;
  const bool eights = shape.g == 1 && shape.c % 8 == 0 && shape.k % 8 == 0;
  return engine.finishes && problem.direction == Direction::kForward &&
         SizeOf(problem.dtype) == 2 && eights && known && plain && !pools && !epilogue.empty();
}

std::string LabelOf(const EngineInfo& engine) {
  return engine.library.empty() ? engine.name : engine.name + " (" + engine.library + ")";
}

}  // namespace oocdnn
