#include "device/cuda/peers.hpp"

#include <utility>

namespace oocdnn::cuda {

Result<const PrimaryContext*> Peers::Reach(int ordinal) {
  const auto known = reached_.find(ordinal);
  if (known != reached_.end()) return &known->second;
  if (ordinal == own_.ordinal()) {
    return Error(Code::kInvalidProblem, "GPU %d borrows from other GPUs, and not from itself",
                 ordinal);
  }
  OOC_ASSIGN(PrimaryContext peer, PrimaryContext::Retain(ordinal));
  const Driver& driver = own_.driver();
  int reaches = 0;
  OOC_CUDA(driver, cuDeviceCanAccessPeer, &reaches, own_.device(), peer.device());
  if (reaches == 0) {
    return Error(Code::kUnsupported, "GPU %d does not reach the memory of GPU %d", own_.ordinal(),
                 ordinal);
  }
  const Current current(own_);
  OOC_TRY(current.status());
  const CUresult result = driver.cuCtxEnablePeerAccess(peer.handle(), 0);
  if (result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
    OOC_TRY(driver.Check(result, "cuCtxEnablePeerAccess"));
  }
  return &reached_.emplace(ordinal, std::move(peer)).first->second;
}

}  // namespace oocdnn::cuda
