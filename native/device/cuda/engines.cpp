#include <iterator>

#include "base/checked.hpp"
#include "base/log.hpp"
#include "device/cuda/engine.hpp"

namespace oocdnn::cuda {

namespace {

// An engine's own name, or the first part of it: "cudnn" admits all of cuDNN's.
bool Admits(const std::string& only, const std::string& name) {
  return only.empty() || name == only || name.starts_with(only + "-");
}

}  // namespace

CudaEngines MakeEngines(const Gpu& gpu, const CudaOptions& options, std::string* why_not) {
  CudaEngines engines;
  const std::string& only = options.engine;
  engines.push_back(MakeDepthwiseEngine(gpu));
  if (gpu.has_tf32()) engines.push_back(MakeFp32x3Engine(gpu));
  if (only.empty() || only.starts_with("cudnn")) {
    Result<CudaEngines> made = MakeCudnnEngines(gpu, options.cudnn_path);
    if (made.ok()) {
      std::move(made->begin(), made->end(), std::back_inserter(engines));
    } else {
      *why_not = made.status().message();
      Log(LogLevel::kInfo, "convolutions run without cuDNN: %s", why_not->c_str());
    }
  }
  engines.push_back(MakeDirectEngine(gpu));
  std::erase_if(engines, [&](const auto& engine) { return !Admits(only, engine->info().name); });
  if (engines.empty() && why_not->empty())
    *why_not = "known are cudnn, cudnn-nhwc, cudnn-nchw, depthwise, direct, fp32x3";
  return engines;
}

}  // namespace oocdnn::cuda
