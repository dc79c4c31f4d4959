#include "shim/gpu_facts.hpp"

#include <dlfcn.h>

namespace oocdnn::shim {
namespace {

struct Facts {
  CUresult (*attributes)(unsigned, CUpointer_attribute*, void**, CUdeviceptr) = nullptr;
  CUresult (*device)(CUdevice*) = nullptr;
  CUresult (*memory)(size_t*, size_t*) = nullptr;
  CUresult (*capturing)(CUstream, CUstreamCaptureStatus*) = nullptr;
};

const Facts& Driver() {
  static const Facts facts = [] {
    Facts found;
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return found;
    found.attributes =
        reinterpret_cast<decltype(Facts::attributes)>(dlsym(library, "cuPointerGetAttributes"));
    found.device = reinterpret_cast<decltype(Facts::device)>(dlsym(library, "cuCtxGetDevice"));
    found.memory = reinterpret_cast<decltype(Facts::memory)>(dlsym(library, "cuMemGetInfo_v2"));
    found.capturing =
        reinterpret_cast<decltype(Facts::capturing)>(dlsym(library, "cuStreamIsCapturing"));
    return found;
  }();
  return facts;
}

}  // namespace

Tier TierOf(const void* pointer) {
  if (Driver().attributes == nullptr) return Tier::kUnknown;
  unsigned type = 0, managed = 0;
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void* values[] = {&type, &managed};
  const CUresult answer =
      Driver().attributes(2, names, values, reinterpret_cast<CUdeviceptr>(pointer));
  if (answer != CUDA_SUCCESS) return Tier::kUnknown;
  if (managed != 0 || type == CU_MEMORYTYPE_DEVICE) return Tier::kDevice;
  return type == CU_MEMORYTYPE_HOST ? Tier::kPinned : Tier::kPageable;
}

bool IsCapturing(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const bool said =
      Driver().capturing != nullptr && Driver().capturing(stream, &status) == CUDA_SUCCESS;
  return said && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

int CurrentDevice() {
  CUdevice device = 0;
  const bool said = Driver().device != nullptr && Driver().device(&device) == CUDA_SUCCESS;
  return said ? device : 0;
}

int64_t FreeBytes() {
  size_t free = 0, total = 0;
  const bool said = Driver().memory != nullptr && Driver().memory(&free, &total) == CUDA_SUCCESS;
  return said ? static_cast<int64_t>(free) : 0;
}

}  // namespace oocdnn::shim
