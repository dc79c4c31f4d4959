// Gpu: one GPU with the context, the kernels and the numbers that everything else here needs.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "device/cuda/driver.hpp"
#include "device/cuda/kernel_args.h"
#include "device/cuda/primary_context.hpp"

namespace oocdnn::cuda {

enum class Kernel : int {
  kRows,
  kTranspose,
  kZero,
  kFinish,
  kPoolForward,
  kDense,
  kPlanes,
  kPoolBackward,
  kNormalize,
  kSum,
  kDirectGather,
  kDirectFilter,
  kDirectElements,
  kDepthwise,
  kDepthwiseFilter,
  kDepthwiseAdd,
  kFp32x3Gather,
  kFp32x3GatherNarrow,
  kFp32x3Filter,
  kFp32x3FilterNarrow,
  kFp32x3FilterTransposed,
  kFp32x3Add,
  kBiasParts,
  kBiasChain,
};
constexpr int kKernels = 24;

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
  // Retains the GPU's primary context and loads our kernels into it.
  static Result<std::unique_ptr<Gpu>> Open(const GpuOptions& options);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  [[nodiscard]] const PrimaryContext& context() const { return context_; }
  [[nodiscard]] const Driver& driver() const { return context_.driver(); }
  [[nodiscard]] int ordinal() const { return context_.ordinal(); }
  [[nodiscard]] const std::string& name() const { return name_; }
  // Where our kernels come from, for people.
  [[nodiscard]] const std::string& kernels() const { return kernels_; }
  [[nodiscard]] int64_t total_bytes() const { return total_bytes_; }
  [[nodiscard]] int multiprocessors() const { return multiprocessors_; }
  [[nodiscard]] int64_t max_pitch() const { return max_pitch_; }
  [[nodiscard]] int compute_major() const { return major_; }
  [[nodiscard]] int compute_minor() const { return minor_; }
  // True if the kernels were compiled for GPUs whose tensor cores take TF32. Kernels for older GPUs
  // run on newer ones, too.
  [[nodiscard]] bool has_tf32() const { return has_tf32_; }
  // True if the kernels of fp32x3 multiply by wgmma.
  [[nodiscard]] bool has_wgmma() const { return has_wgmma_; }
  // Copies get the higher priority, so that their kernels start beside a large one.
  [[nodiscard]] int least_priority() const { return least_priority_; }
  [[nodiscard]] int greatest_priority() const { return greatest_priority_; }

  // Enqueues a kernel; the context must be current. `args` are copied.
  template <class Args>
  Status Launch(Kernel kernel, const LaunchShape& shape, CUstream stream, const Args& args) const {
    return LaunchRaw(kernel, shape, stream, &args);
  }

 private:
  explicit Gpu(PrimaryContext context) : context_(std::move(context)) {}
  Status Describe();
  Status LoadKernels(const GpuOptions& options);
  Status DescribeKernels();
  Status LaunchRaw(Kernel kernel, const LaunchShape& shape, CUstream stream,
                   const void* args) const;

  const PrimaryContext context_;
  CUmodule module_ = nullptr;
  std::array<CUfunction, kKernels> function_{};
  std::string name_, kernels_;
  int64_t total_bytes_ = 0, max_pitch_ = 0;
  bool has_tf32_ = false, has_wgmma_ = false;
  int multiprocessors_ = 0, major_ = 0, minor_ = 0, least_priority_ = 0, greatest_priority_ = 0;
};

}  // namespace oocdnn::cuda
