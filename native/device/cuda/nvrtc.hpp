// Compiles our kernels where the library was built without nvcc, or for a GPU or driver that its
// fat binary does not serve.
#pragma once

#include <string>

#include "base/status.hpp"

namespace oocdnn::cuda {

// The kernels as a binary for a GPU of compute capability major.minor: from the cache, else
// compiled by NVRTC (seconds) and put there. `nvrtc_path` and `cache_folder` may be empty: found by
// library_finder, and CacheFolder(). A cache that cannot be written costs time and nothing else; a
// file in it that is damaged, or that another user may have written, is not used.
Result<std::string> CompiledKernels(int major, int minor, const std::string& nvrtc_path,
                                    const std::string& cache_folder);

}  // namespace oocdnn::cuda
