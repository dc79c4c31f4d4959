// The oneDNN engine of the CPU device, and the plug-in's entry point.
//
// It does forward, backward data and backward filter in float, and in bfloat16 where the processor
// does; other 16-bit tiles are kept in float. What oneDNN has no fast code for it refuses, with the
// reason, and another engine serves.
#include <algorithm>
#include <thread>
#include <utility>

#include "base/guarded.hpp"
#include "base/recent.hpp"
#include "base/thread.hpp"
#include "device/cpu/onednn/convolution.hpp"
#include "device/cpu/onednn/threads.hpp"
#include "device/cpu/onednn_abi.hpp"
#include "geom/engines.hpp"

namespace oocdnn::cpu {
namespace onednn {
namespace {

using SharedConvolution = std::shared_ptr<const Convolution>;

class OneDnnExecutable final : public CpuExecutable {
 public:
  OneDnnExecutable(const EngineInfo& info, SharedConvolution convolution)
      : convolution_(std::move(convolution)) {
    engine_ = info.name + " " + convolution_->implementation();
    properties_ = info.properties;
    workspace_bytes_ = convolution_->workspace_bytes();
    for (const Operand operand : {Operand::kX, Operand::kW, Operand::kY}) {
      layout_[Index(operand)] = convolution_->layout(operand);
    }
  }
  Status Run(const RunArgs& args, Parallel&) override { return convolution_->Run(args); }

 private:
  const SharedConvolution convolution_;
};

bool IsEmpty(const ConvShape& shape) {
  const auto none = [](const Spatial& extents) {
    return std::any_of(extents.begin(), extents.end(), [](int64_t extent) { return extent < 1; });
  };
  return shape.n < 1 || shape.g < 1 || shape.k < 1 || shape.c < 1 || none(shape.in) ||
         none(shape.filter) || none(shape.out);
}

bool IsConsistent(const ConvShape& shape) {
  for (int s = 0; s < 3; ++s) {
    if (shape.out[s] != OutputExtent(shape.in[s], shape.pad_before[s], shape.pad_after[s],
                                     shape.filter[s], shape.stride[s], shape.dilation[s])) {
      return false;
    }
  }
  return true;
}

Status Refusal(const TileOp& op) {
  if (op.direction == Direction::kBackwardBias) {
    return Error(Code::kUnsupported, "oneDNN has no gradient of the bias alone");
  }
  if (op.reproducible) {
    return Error(Code::kUnsupported,
                 "oneDNN's bits depend on the tile's shape, and a reproducible result must not");
  }
  if (op.dtype == DType::kFloat64 || op.out_dtype == DType::kFloat64) {
    return Error(Code::kUnsupported, "oneDNN does not compute in f64");
  }
  if (op.shape.pad_before != op.shape.pad_after) {
    return Error(Code::kUnsupported, "the padding of a tile must be the same on both sides");
  }
  if (IsEmpty(op.shape)) return Error(Code::kUnsupported, "the tile is empty");
  if (!IsConsistent(op.shape)) {
    return Error(Code::kInternal, "the sizes of the tile's input and output do not go together");
  }
  return {};
}

EngineInfo Info() {
  EngineInfo info = EngineNamed("onednn");
  const dnnl_version_t& version = *dnnl_version();
  info.library = Format("oneDNN %d.%d.%d", version.major, version.minor, version.patch);
  return info;
}

// A fork needs no care here: the child's engines run on a thread of its own, which starts a new
// team, and preparing starts none.
class OneDnnEngine final : public CpuEngine {
 public:
  explicit OneDnnEngine(std::shared_ptr<Runtime> runtime) : runtime_(std::move(runtime)) {}

  [[nodiscard]] const EngineInfo& info() const override { return info_; }
  Result<std::unique_ptr<CpuExecutable>> Prepare(const TileOp& op, int threads) override {
    OOC_TRY(Refusal(op));
    OOC_ASSIGN(SharedConvolution convolution,
               Remembered(op, std::clamp(threads, 1, omp_get_thread_limit())));
    return std::unique_ptr<CpuExecutable>(
        std::make_unique<OneDnnExecutable>(info_, std::move(convolution)));
  }

 private:
  // Compiling takes milliseconds, and planners ask for the same tiles again and again.
  static constexpr size_t kRemembered = 64;

  Result<SharedConvolution> Remembered(TileOp op, int threads) {
    op.math = Math::kFp32;  // there are no other units
    const auto* const known = answers_.Find({op, threads});
    if (known != nullptr) return *known;
    Result<SharedConvolution> made = Compile(op, threads);
    if (!LacksMemory(made.status())) answers_.Put({op, threads}, made);
    return made;
  }

  // oneDNN's assembler keeps the first error of a thread, and compiles nothing there any more once
  // it has found no memory. A thread that has just been started has no such error.
  Result<SharedConvolution> Compile(const TileOp& op, int threads) {
    thread_local bool spoilt = false;
    if (!spoilt) {
      Result<SharedConvolution> made = Make(op, threads);
      spoilt = LacksMemory(made.status());
      if (!spoilt) return made;
    }
    Result<SharedConvolution> made = SharedConvolution();
    OOC_ASSIGN(std::thread other, StartThread("oocdnn-compile", [&] {
                 const Status status = Guarded([&]() -> Status {
                   OOC_ASSIGN(made, Make(op, threads));
                   return {};
                 });
                 if (!status.ok()) made = status;
               }));
    other.join();
    return made;
  }

  // oneDNN's cache of primitives keeps those that failed, too.
  Result<SharedConvolution> Make(const TileOp& op, int threads) {
    Result<SharedConvolution> made = Convolution::Make(runtime_, op, threads);
    int capacity = 0;
    if (LacksMemory(made.status()) &&
        dnnl_get_primitive_cache_capacity(&capacity) == dnnl_success) {
      static_cast<void>(dnnl_set_primitive_cache_capacity(0));
      static_cast<void>(dnnl_set_primitive_cache_capacity(capacity));
    }
    return made;
  }

  // Memory that the host lacks now may be there next time. A limit that is too low stays so.
  static bool LacksMemory(const Status& why) {
    return why.code() == Code::kOutOfMemory && why.detail() == 0;
  }

  const EngineInfo info_ = Info();
  const std::shared_ptr<Runtime> runtime_;
  Recent<std::pair<TileOp, int>, Result<SharedConvolution>> answers_{kRemembered};
};

}  // namespace
}  // namespace onednn
}  // namespace oocdnn::cpu

extern "C" __attribute__((visibility("default"))) oocdnn::cpu::CpuEngine* oocdnn_onednn_engine(
    int abi_version, const char** why) {
  using oocdnn::cpu::onednn::OneDnnEngine;
  if (abi_version != oocdnn::cpu::kOneDnnAbiVersion) {
    *why = "the oneDNN plug-in was built with another version of oocdnn";
    return nullptr;
  }
  auto runtime = oocdnn::cpu::onednn::Runtime::Create();
  if (!runtime.ok()) {
    *why = "oneDNN gives no CPU engine";
    return nullptr;
  }
  return new OneDnnEngine(std::move(runtime).value());
}
