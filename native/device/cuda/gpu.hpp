// Gpu: one GPU with the context, the kernels and the numbers that everything else here needs.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "device/cuda/driver.hpp"
#include "device/cuda/kernel_args.h"

namespace oocdnn::cuda {

enum class Kernel : int {
  kRows,
  kTranspose,
  kZero,
  kFinish,
  kMake,
  kDense,
  kPlanes,
  kRestore,
  kNormalize,
  kSum,
  kDirectGather,
  kDirectFilter,
  kDirectElements,
  kBiasParts,
  kBiasChain,
};
constexpr int kKernels = 15;

// How a kernel is to be launched.
struct LaunchShape {
  Long blocks = 1;
  int threads = 256;
  int shared_bytes = 0;
};

struct GpuOptions {
  int ordinal = 0;
  std::string nvrtc_path, cache_folder;  // see nvrtc.hpp
};

class Gpu {
 public:
  // Retains the GPU's primary context, which it shares with the CUDA runtime of this process, and
  // loads our kernels into it.
  static Result<std::unique_ptr<Gpu>> Open(const GpuOptions& options);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] CUcontext context() const { return context_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  // Where our kernels come from, for people.
  [[nodiscard]] const std::string& kernels() const { return kernels_; }
  [[nodiscard]] int64_t total_bytes() const { return total_bytes_; }
  [[nodiscard]] int multiprocessors() const { return multiprocessors_; }
  [[nodiscard]] int64_t max_pitch() const { return max_pitch_; }
  [[nodiscard]] int compute_major() const { return major_; }
  [[nodiscard]] int compute_minor() const { return minor_; }
  // Copies get the higher priority, so that their kernels start beside a large one.
  [[nodiscard]] int least_priority() const { return least_priority_; }
  [[nodiscard]] int greatest_priority() const { return greatest_priority_; }

  // Enqueues a kernel; the context must be current. `args` are copied.
  template <class Args>
  Status Launch(Kernel kernel, const LaunchShape& shape, CUstream stream, const Args& args) const {
    return LaunchRaw(kernel, shape, stream, &args);
  }

 private:
  Gpu(const Driver* driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}
  Status Describe();
  Status LoadKernels(const GpuOptions& options);
  Status LaunchRaw(Kernel kernel, const LaunchShape& shape, CUstream stream,
                   const void* args) const;

  const Driver* const driver_;
  const int ordinal_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  std::array<CUfunction, kKernels> function_{};
  std::string name_, kernels_;
  int64_t total_bytes_ = 0, max_pitch_ = 0;
  int multiprocessors_ = 0, major_ = 0, minor_ = 0, least_priority_ = 0, greatest_priority_ = 0;
};

// Makes the GPU's context current in this thread for as long as it lives, and the thread's capture
// mode relaxed, so that our allocations never invalidate somebody's capture. Both are put back. One
// within another for the same GPU does nothing.
class Current {
 public:
  explicit Current(const Gpu& gpu);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  [[nodiscard]] Status status() const;

 private:
  const Gpu& gpu_;
  const Gpu* const outer_;
  CUresult pushed_ = CUDA_SUCCESS;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace oocdnn::cuda
