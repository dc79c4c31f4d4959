// The stream of the fake cuDNN's handle, of which there is one.
#pragma once

#include <dlfcn.h>

#include "abi/cuda_driver.h"

inline CUstream current_stream = nullptr;

// Until all is done that the stream holds; false where the driver says no.
inline bool WaitForStream() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return true;  // no streams without it
  void* const wait = dlsym(driver, "cuStreamSynchronize");
  const CUresult result = reinterpret_cast<CUresult (*)(CUstream)>(wait)(current_stream);
  dlclose(driver);
  return result == CUDA_SUCCESS;
}
