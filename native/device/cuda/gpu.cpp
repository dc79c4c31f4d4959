#include "device/cuda/gpu.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "device/cuda/embedded.hpp"
#include "device/cuda/nvrtc.hpp"

namespace oocdnn::cuda {
namespace {

// By the value of Kernel.
constexpr std::array<const char*, kKernels> kKernelNames{"ooc_rows",
                                                         "ooc_transpose",
                                                         "ooc_zero",
                                                         "ooc_finish",
                                                         "ooc_pool_forward",
                                                         "ooc_dense",
                                                         "ooc_planes",
                                                         "ooc_pool_backward",
                                                         "ooc_normalize",
                                                         "ooc_sum",
                                                         "ooc_direct_gather",
                                                         "ooc_direct_filter",
                                                         "ooc_direct_elements",
                                                         "ooc_depthwise",
                                                         "ooc_depthwise_filter",
                                                         "ooc_depthwise_add",
                                                         "ooc_fp32x3_gather",
                                                         "ooc_fp32x3_gather_narrow",
                                                         "ooc_fp32x3_filter",
                                                         "ooc_fp32x3_filter_narrow",
                                                         "ooc_fp32x3_filter_transposed",
                                                         "ooc_fp32x3_add",
                                                         "ooc_bias_parts",
                                                         "ooc_bias_chain"};

}  // namespace

Result<std::unique_ptr<Gpu>> Gpu::Open(const GpuOptions& options) {
  OOC_ASSIGN(PrimaryContext context, PrimaryContext::Retain(options.ordinal));
  std::unique_ptr<Gpu> gpu(new Gpu(std::move(context)));
  const Current current(gpu->context());
  OOC_TRY(current.status());
  OOC_TRY(gpu->Describe());
  OOC_TRY(gpu->LoadKernels(options).With("loading the CUDA kernels"));
  return gpu;
}

// Errors are ignored: the process may be ending, and nobody is left to handle them.
Gpu::~Gpu() {
  if (module_ == nullptr) return;
  const Current current(context_);
  driver().cuModuleUnload(module_);
}

Status Gpu::Describe() {
  char name[256] = "";
  OOC_CUDA(driver(), cuDeviceGetName, name, sizeof name, context_.device());
  name_ = name;
  size_t bytes = 0;
  OOC_CUDA(driver(), cuDeviceTotalMem, &bytes, context_.device());
  total_bytes_ = static_cast<int64_t>(bytes);
  int pitch = 0;
  const auto attribute = [&](CUdevice_attribute which, int* value) {
    return driver().Check(driver().cuDeviceGetAttribute(value, which, context_.device()),
                          "cuDeviceGetAttribute");
  };
  OOC_TRY(attribute(CU_DEVICE_ATTRIBUTE_MAX_PITCH, &pitch));
  OOC_TRY(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &multiprocessors_));
  OOC_TRY(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major_));
  OOC_TRY(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor_));
  max_pitch_ = pitch;
  OOC_CUDA(driver(), cuCtxGetStreamPriorityRange, &least_priority_, &greatest_priority_);
  return {};
}

// The fat binary serves most. It has no code for some GPUs, and a driver older than the nvcc that
// made it may refuse it.
Status Gpu::LoadKernels(const GpuOptions& options) {
  Status refused;
  kernels_ = Format("built in for %s", KernelTargets());
  if (!KernelFatBinary().empty()) {
    refused = driver().Check(driver().cuModuleLoadData(&module_, KernelFatBinary().data()),
                             "cuModuleLoadData of the built-in kernels");
    if (!refused.ok()) {
      module_ = nullptr;
      Log(LogLevel::kInfo, "%s", refused.message().c_str());
    }
  }
  if (module_ == nullptr) {
    auto compiled = CompiledKernels(major_, minor_, options.nvrtc_path, options.cache_folder);
    if (!compiled.ok()) {
      return refused.ok() ? std::move(compiled).status()
                          : std::move(compiled).status().With(refused.message());
    }
    OOC_CUDA(driver(), cuModuleLoadData, &module_, compiled.value().data());
    kernels_ = Format("compiled by NVRTC for sm_%d%d", major_, minor_);
  }
  for (int i = 0; i < kKernels; ++i) {
    OOC_CUDA(driver(), cuModuleGetFunction, &function_[i], module_, kKernelNames[i]);
  }
  return DescribeKernels();
}

// Their attributes tell for which GPUs they were compiled.
Status Gpu::DescribeKernels() {
  constexpr int kLeastTf32 = 80;
  const auto function = [this](Kernel kernel) { return function_[static_cast<size_t>(kernel)]; };
  int version = 0, threads = 0, shared = 0;
  OOC_CUDA(driver(), cuFuncGetAttribute, &version, CU_FUNC_ATTRIBUTE_PTX_VERSION,
           function(Kernel::kFp32x3Gather));
  has_tf32_ = version >= kLeastTf32;
  OOC_CUDA(driver(), cuFuncGetAttribute, &threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
           function(Kernel::kFp32x3Gather));
  has_wgmma_ = threads > Fp32x3Mma::kThreads;
  if (!has_wgmma_) return {};
  OOC_CUDA(driver(), cuDeviceGetAttribute, &shared,
           CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, context_.device());
  for (const Kernel kernel :
       {Kernel::kFp32x3Gather, Kernel::kFp32x3GatherNarrow, Kernel::kFp32x3Filter,
        Kernel::kFp32x3FilterNarrow, Kernel::kFp32x3FilterTransposed}) {
    OOC_CUDA(driver(), cuFuncSetAttribute, function(kernel),
             CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared);
  }
  return {};
}

Status Gpu::LaunchRaw(Kernel kernel, const LaunchShape& shape, CUstream stream,
                      const void* args) const {
  constexpr Long kMostBlocks = 0x7fffffff;
  const auto which = static_cast<size_t>(kernel);
  void* parameters[] = {const_cast<void*>(args)};
  const auto blocks = static_cast<unsigned>(std::clamp<Long>(shape.blocks, 1, kMostBlocks));
  return driver().Check(
      driver().cuLaunchKernel(function_[which], blocks, 1, 1, static_cast<unsigned>(shape.threads),
                              1, 1, static_cast<unsigned>(shape.shared_bytes), stream, parameters,
                              nullptr),
      kKernelNames[which]);
}

}  // namespace oocdnn::cuda
