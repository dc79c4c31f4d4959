#include "device/cuda/cudnn_session.hpp"

namespace oocdnn::cuda {

Result<std::shared_ptr<CudnnSession>> CudnnSession::Open(const Gpu& gpu,
                                                         const std::string& library) {
  OOC_ASSIGN(const Cudnn* const cudnn, LoadCudnn(library));
  std::shared_ptr<CudnnSession> session(new CudnnSession(gpu, *cudnn));
  // A handle belongs to the GPU that is current when it is made.
  const Current current(gpu.context());
  OOC_TRY(current.status());
  OOC_TRY(cudnn->Check(cudnn->cudnnCreate(&session->handle_), "making a handle"));
  return session;
}

CudnnSession::~CudnnSession() {
  const Current current(gpu_.context());
  if (handle_ != nullptr) cudnn_.cudnnDestroy(handle_);
}

// A plan that was prepared has passed all checks, so whatever fails now is the device's.
Status CudnnSession::Execute(CUstream stream, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack) {
  if (stream != stream_) {
    OOC_TRY(cudnn_.Check(cudnn_.cudnnSetStream(handle_, stream), "changing the stream"));
    stream_ = stream;
  }
  Status status = cudnn_.Check(cudnn_.cudnnBackendExecute(handle_, plan, pack), "a convolution");
  return status.ok() ? status : Status(Code::kDeviceError, status.message());
}

}  // namespace oocdnn::cuda
