// Session: the handle through which one GPU's convolutions reach cuDNN.
#pragma once

#include <memory>

#include "device/cuda/cudnn_library.hpp"
#include "device/cuda/gpu.hpp"

namespace oocdnn::cuda {

// One thread at a time, with the GPU's context current; it is made and destroyed anywhere.
class CudnnSession {
 public:
  // `library`: see LoadCudnn.
  static Result<std::shared_ptr<CudnnSession>> Open(const Gpu& gpu, const std::string& library);
  ~CudnnSession();
  CudnnSession(const CudnnSession&) = delete;
  CudnnSession& operator=(const CudnnSession&) = delete;

  [[nodiscard]] const Gpu& gpu() const { return gpu_; }
  [[nodiscard]] const Cudnn& cudnn() const { return cudnn_; }
  [[nodiscard]] cudnnHandle_t handle() const { return handle_; }

  // Enqueues a plan on the stream.
  Status Execute(CUstream stream, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack);

 private:
  CudnnSession(const Gpu& gpu, const Cudnn& cudnn) : gpu_(gpu), cudnn_(cudnn) {}

  const Gpu& gpu_;
  const Cudnn& cudnn_;
  cudnnHandle_t handle_ = nullptr;
  CUstream stream_ = nullptr;
};

}  // namespace oocdnn::cuda
