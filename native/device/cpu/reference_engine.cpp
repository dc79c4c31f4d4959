// The reference engine: the definition of each direction as nested loops, summed in double and
// rounded once per tile. Slow, and simple enough to be read as the specification. The gradients of
// filter and bias, which are summed over tiles, stay in double in their tile: the sums continue
// from tile to tile as if the problem had not been cut.
//
// Padding is zero data that takes part: a NaN in a filter tap that meets padding gives NaN, as it
// does where a tile's slot holds the padding. So cutting a problem never changes which outputs a
// NaN reaches.
#include <utility>

#include "device/cpu/engine.hpp"
#include "device/layouts.hpp"
#include "geom/engines.hpp"

namespace oocdnn::cpu {
namespace {

// Calls fn for all index triples below `extent`.
template <class Fn>
void ForEach(const Spatial& extent, const Fn& fn) {
  for (int64_t d = 0; d < extent[0]; ++d) {
    for (int64_t h = 0; h < extent[1]; ++h) {
      for (int64_t w = 0; w < extent[2]; ++w) fn(Spatial{d, h, w});
    }
  }
}

template <class T>
class Tile {
 public:
  Tile(const TileLayout& layout, void* data) : layout_(layout), data_(static_cast<T*>(data)) {}

  T& At(int64_t a, int64_t g, int64_t c, const Spatial& at) const {
    const Dims& s = layout_.stride;
    return data_[a * s[0] + g * s[1] + c * s[2] + at[0] * s[3] + at[1] * s[4] + at[2] * s[5]];
  }
  // A filter's element: its first dimension is the group.
  T& Tap(int64_t g, int64_t k, int64_t c, const Spatial& at) const { return At(g, k, c, at); }
  // As At, but zero outside of the tile.
  double Read(int64_t a, int64_t g, int64_t c, const Spatial& at) const {
    for (int d = 0; d < 3; ++d) {
      if (at[d] < 0 || at[d] >= layout_.shape[3 + d]) return 0.0;
    }
    return At(a, g, c, at);
  }

 private:
  const TileLayout& layout_;
  T* data_;
};

// Where the sum of an output element starts.
template <class T>
double Start(const T& element, bool accumulate) {
  return accumulate ? static_cast<double>(element) : 0.0;
}

// The place in x that output place `out` reads with filter tap `tap`.
Spatial InputOf(const ConvShape& shape, const Spatial& out, const Spatial& tap) {
  Spatial in;
  for (int d = 0; d < 3; ++d) {
    in[d] = out[d] * shape.stride[d] + tap[d] * shape.dilation[d] - shape.pad_before[d];
  }
  return in;
}

// The place in y that reads input place `in` with filter tap `tap`; false where none does. It may
// lie outside of y.
bool OutputOf(const ConvShape& shape, const Spatial& in, const Spatial& tap, Spatial* out) {
  for (int d = 0; d < 3; ++d) {
    const int64_t place = in[d] + shape.pad_before[d] - tap[d] * shape.dilation[d];
    if (place % shape.stride[d] != 0) return false;
    (*out)[d] = place / shape.stride[d];
  }
  return true;
}

template <class T>
struct Tiles {
  const ConvShape& shape;
  Tile<T> x, w, y;
  Tile<double> dw, db;
  bool accumulate;
};

template <class T>
void Forward(const Tiles<T>& t, int64_t n, int64_t g, int64_t k) {
  ForEach(t.shape.out, [&](const Spatial& out) {
    auto& element = t.y.At(n, g, k, out);
    double sum = Start(element, t.accumulate);
    for (int64_t c = 0; c < t.shape.c; ++c) {
      ForEach(t.shape.filter, [&](const Spatial& tap) {
        sum += t.x.Read(n, g, c, InputOf(t.shape, out, tap)) * t.w.Tap(g, k, c, tap);
      });
    }
    element = static_cast<T>(sum);
  });
}

template <class T>
void BackwardData(const Tiles<T>& t, int64_t n, int64_t g, int64_t c) {
  ForEach(t.shape.in, [&](const Spatial& in) {
    auto& element = t.x.At(n, g, c, in);
    double sum = Start(element, t.accumulate);
    for (int64_t k = 0; k < t.shape.k; ++k) {
      ForEach(t.shape.filter, [&](const Spatial& tap) {
        Spatial out;
        if (!OutputOf(t.shape, in, tap, &out)) return;
        sum += t.y.Read(n, g, k, out) * t.w.Tap(g, k, c, tap);
      });
    }
    element = static_cast<T>(sum);
  });
}

template <class T>
void BackwardFilter(const Tiles<T>& t, int64_t g, int64_t k, int64_t c) {
  ForEach(t.shape.filter, [&](const Spatial& tap) {
    auto& element = t.dw.Tap(g, k, c, tap);
    double sum = Start(element, t.accumulate);
    for (int64_t n = 0; n < t.shape.n; ++n) {
      ForEach(t.shape.out, [&](const Spatial& out) {
        sum += t.x.Read(n, g, c, InputOf(t.shape, out, tap)) * t.y.Read(n, g, k, out);
      });
    }
    element = sum;
  });
}

template <class T>
void BackwardBias(const Tiles<T>& t, int64_t g, int64_t k) {
  auto& element = t.db.At(0, g, k, {0, 0, 0});
  double sum = Start(element, t.accumulate);
  for (int64_t n = 0; n < t.shape.n; ++n) {
    ForEach(t.shape.out, [&](const Spatial& out) { sum += t.y.Read(n, g, k, out); });
  }
  element = sum;
}

// Runs fn(i, j, l) over a box of three extents, in parallel.
template <class Fn>
void For3(Parallel& parallel, int64_t a, int64_t b, int64_t c, const Fn& fn) {
  parallel.For(a * b * c, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fn(i / (b * c), i / c % b, i % c);
  });
}

template <class T>
void RunDirection(Direction direction, const Tiles<T>& t, Parallel& parallel) {
  const ConvShape& s = t.shape;
  switch (direction) {
    case Direction::kForward:
      return For3(parallel, s.n, s.g, s.k,
                  [&](int64_t n, int64_t g, int64_t k) { Forward(t, n, g, k); });
    case Direction::kBackwardData:
      return For3(parallel, s.n, s.g, s.c,
                  [&](int64_t n, int64_t g, int64_t c) { BackwardData(t, n, g, c); });
    case Direction::kBackwardFilter:
      return For3(parallel, s.g, s.k, s.c,
                  [&](int64_t g, int64_t k, int64_t c) { BackwardFilter(t, g, k, c); });
    case Direction::kBackwardBias:
      return For3(parallel, 1, s.g, s.k,
                  [&](int64_t, int64_t g, int64_t k) { BackwardBias(t, g, k); });
  }
}

const EngineInfo& Info() { return EngineNamed("reference"); }

class ReferenceExecutable final : public CpuExecutable {
 public:
  explicit ReferenceExecutable(const TileOp& op) : op_(op) {
    engine_ = Info().name;
    properties_ = Info().properties;
    const bool sums_w = op.direction == Direction::kBackwardFilter;
    Lay(Operand::kX, AccumulatorOf(op.dtype));
    Lay(Operand::kW, sums_w ? DType::kFloat64 : AccumulatorOf(op.dtype));
    Lay(Operand::kY, AccumulatorOf(op.dtype));
    Lay(Operand::kBias, DType::kFloat64);
  }

  Status Run(const RunArgs& args, Parallel& parallel) override {
    if (op_.dtype == DType::kFloat64) {
      RunTyped<double>(args, parallel);
    } else {
      RunTyped<float>(args, parallel);
    }
    return {};
  }

 private:
  void Lay(Operand operand, DType dtype) {
    layout_[Index(operand)] =
        PlainLayout(dtype, op_.shape.DimsOf(operand, op_.direction), kDenseOrder);
  }

  template <class T>
  Tile<T> TileOf(const RunArgs& args, Operand operand) const {
    return Tile<T>(layout(operand), args.tile[Index(operand)]);
  }

  template <class T>
  void RunTyped(const RunArgs& args, Parallel& parallel) {
    const Tiles<T> tiles{op_.shape,
                         TileOf<T>(args, Operand::kX),
                         TileOf<T>(args, Operand::kW),
                         TileOf<T>(args, Operand::kY),
                         TileOf<double>(args, Operand::kW),
                         TileOf<double>(args, Operand::kBias),
                         args.accumulate};
    RunDirection(op_.direction, tiles, parallel);
  }

  const TileOp op_;
};

class ReferenceEngine final : public CpuEngine {
 public:
  const EngineInfo& info() const override { return info_; }
  Result<std::unique_ptr<CpuExecutable>> Prepare(const TileOp& op, int) override {
    return std::unique_ptr<CpuExecutable>(std::make_unique<ReferenceExecutable>(op));
  }

 private:
  const EngineInfo info_ = Info();
};

}  // namespace

std::unique_ptr<CpuEngine> MakeReferenceEngine() { return std::make_unique<ReferenceEngine>(); }

}  // namespace oocdnn::cpu
