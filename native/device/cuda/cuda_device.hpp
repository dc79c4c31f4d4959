// The CUDA device: one GPU, through the driver that the system has. Nothing of a toolkit is needed
// where it runs.
#pragma once

#include <memory>
#include <string>

#include "device/borrowed_gpus.hpp"
#include "device/device.hpp"

namespace oocdnn {

struct CudaOptions {
  int ordinal = 0;
  std::string engine;        // only this one; "cudnn": all of cuDNN's; "": all, fastest first
  std::string cudnn_path;    // "": searched
  std::string nvrtc_path;    // "": searched; used only where no built-in kernels fit the GPU
  std::string cache_folder;  // for kernels compiled on this machine; "": the user's
  BorrowedGpus borrowed;
};

namespace cuda {

// Capabilities::bounce_bytes of every GPU.
constexpr int64_t kBounceBytes = int64_t{64} << 20;

}  // namespace cuda

// kUnsupported with the remedy where there is no driver, no such GPU, or no such engine.
Result<std::unique_ptr<Device>> MakeCudaDevice(const CudaOptions& options);

// The GPUs that this process sees; 0 where there is no driver.
int CountCudaDevices();

}  // namespace oocdnn
