// What a convolution engine of the CUDA device is. Our own engines and cuDNN's implement these
// two classes; the device owns streams, memory and copies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/cuda/cuda_device.hpp"
#include "device/cuda/gpu.hpp"
#include "device/device.hpp"
#include "device/layouts.hpp"

namespace oocdnn::cuda {

class CudaExecutable : public Executable {
 public:
  // Enqueues the convolution on `stream`; the GPU's context is current.
  virtual Status Run(CUstream stream, const RunArgs& args) = 0;
};

// Calls come from one thread at a time, with the GPU's context current.
class CudaEngine {
 public:
  virtual ~CudaEngine() = default;
  [[nodiscard]] virtual const EngineInfo& info() const = 0;
  // Layouts must be plain: no channel blocks, not opaque.
  virtual Result<std::unique_ptr<CudaExecutable>> Prepare(const TileOp& op) = 0;
};

using CudaEngines = std::vector<std::unique_ptr<CudaEngine>>;

std::unique_ptr<CudaEngine> MakeDirectEngine(const Gpu& gpu);
std::unique_ptr<CudaEngine> MakeDepthwiseEngine(const Gpu& gpu);
std::unique_ptr<CudaEngine> MakeFp32x3Engine(const Gpu& gpu);
// cudnn-nhwc and cudnn-nchw. `library`: see LoadCudnn, which says what stands against it.
Result<CudaEngines> MakeCudnnEngines(const Gpu& gpu, const std::string& library);

// The engines that options.engine admits, in order of preference. `why_not` says why one that could
// be there is missing. The one place that names engines.
CudaEngines MakeEngines(const Gpu& gpu, const CudaOptions& options, std::string* why_not);

}  // namespace oocdnn::cuda
