// The direct engine: chooses the part that serves a direction.
#include "device/cpu/direct.hpp"

#include "geom/engines.hpp"

namespace oocdnn::cpu {
namespace {

class DirectEngine final : public CpuEngine {
 public:
  const EngineInfo& info() const override { return info_; }

  Result<std::unique_ptr<CpuExecutable>> Prepare(const TileOp& op, int threads) override {
    for (int d = 0; d < 3 && op.direction != Direction::kBackwardBias; ++d) {
      if (op.shape.pad_before[d] == 0 && op.shape.pad_after[d] == 0) continue;
      return Error(Code::kUnsupported,
                   "takes padding as data only, and was asked for a padding of %lld",
                   static_cast<long long>(op.shape.pad_before[d]));
    }
    switch (op.direction) {
      case Direction::kForward:
      case Direction::kBackwardData:
        return IsDepthwise(op.shape) ? PrepareDirectDepthwise(op)
                                     : PrepareDirectGather(op, threads);
      case Direction::kBackwardFilter: return PrepareDirectFilter(op);
      case Direction::kBackwardBias: return PrepareDirectBias(op);
    }
    return Error(Code::kInternal, "no such direction");
  }

 private:
  const EngineInfo info_ = DirectInfo();
};

}  // namespace

const EngineInfo& DirectInfo() { return EngineNamed("direct"); }

std::unique_ptr<CpuEngine> MakeDirectEngine() { return std::make_unique<DirectEngine>(); }

}  // namespace oocdnn::cpu
