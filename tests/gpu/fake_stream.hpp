// What the fake cuDNN knows of streams.
#pragma once

#include <dlfcn.h>

#include "abi/cuda_driver.h"

// Calls the driver's function; true where there is no driver, as there are no streams then.
template <class... Args>
bool AskDriver(const char* function, Args... args) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return true;
  void* const found = dlsym(driver, function);
  const CUresult result = reinterpret_cast<CUresult (*)(Args...)>(found)(args...);
  dlclose(driver);
  return result == CUDA_SUCCESS;
}

// The context that a handle made now belongs to: of the first GPU, where none is current.
inline CUcontext ContextOfHandle() {
  CUcontext context = nullptr;
  AskDriver("cuCtxGetCurrent", &context);
  if (context == nullptr) AskDriver("cuDevicePrimaryCtxRetain", &context, CUdevice{0});
  return context;
}
inline bool IsOf(CUstream stream, CUcontext context) {
  CUcontext own = nullptr;
  return stream == nullptr || !AskDriver("cuStreamGetCtx", stream, &own) || own == context;
}

// Until all is done that a handle's stream holds; false where the driver says no.
inline bool WaitForStream(CUstream stream) { return AskDriver("cuStreamSynchronize", stream); }
