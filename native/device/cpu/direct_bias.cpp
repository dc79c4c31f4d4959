// Backward bias: the sum of dy over all positions, in double.
#include <algorithm>

#include "device/cpu/direct.hpp"
#include "device/layouts.hpp"

namespace oocdnn::cpu {
namespace {

// Channels whose chains run side by side, since one chain alone waits for its own additions.
constexpr int64_t kChannels = 8;

class DirectBias final : public CpuExecutable {
 public:
  explicit DirectBias(const TileOp& op) : op_(op) {
    engine_ = DirectInfo().name;
    properties_ = DirectInfo().properties;
    layout_[Index(Operand::kY)] = PlainLayout(
        AccumulatorOf(op.dtype), op.shape.DimsOf(Operand::kY, op.direction), kDenseOrder);
    layout_[Index(Operand::kBias)] =
        PlainLayout(DType::kFloat64, op.shape.DimsOf(Operand::kBias, op.direction), kDenseOrder);
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
  template <class T>
  void RunTyped(const RunArgs& args, Parallel& parallel) {
    const auto* const dy = static_cast<const T*>(args.tile[Index(Operand::kY)]);
    auto* const db = static_cast<double*>(args.tile[Index(Operand::kBias)]);
    const int64_t channels = op_.shape.g * op_.shape.k;
    parallel.For(CeilDiv(channels, kChannels), 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kChannels;
        SumChannels(dy, db, first, std::min(kChannels, channels - first), args.accumulate);
      }
    });
  }

  template <class T>
  void SumChannels(const T* dy, double* db, int64_t first, int64_t count, bool accumulate) {
    const int64_t channels = op_.shape.g * op_.shape.k;
    const int64_t plane = op_.shape.out[0] * op_.shape.out[1] * op_.shape.out[2];
    double sum[kChannels] = {};
    for (int64_t c = 0; c < count && accumulate; ++c) sum[c] = db[first + c];
    for (int64_t n = 0; n < op_.shape.n; ++n) {
      const T* const from = dy + (n * channels + first) * plane;
      if (count == kChannels) {
        for (int64_t i = 0; i < plane; ++i) {
          for (int64_t c = 0; c < kChannels; ++c) {
            sum[c] += static_cast<double>(from[c * plane + i]);
          }
        }
      } else {
        for (int64_t c = 0; c < count; ++c) {
          for (int64_t i = 0; i < plane; ++i) sum[c] += static_cast<double>(from[c * plane + i]);
        }
      }
    }
    std::copy(sum, sum + count, db + first);
  }

  const TileOp op_;
};

}  // namespace

Result<std::unique_ptr<CpuExecutable>> PrepareDirectBias(const TileOp& op) {
  return std::unique_ptr<CpuExecutable>(std::make_unique<DirectBias>(op));
}

}  // namespace oocdnn::cpu
