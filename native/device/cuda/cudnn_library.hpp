// cuDNN 9, opened at run time: a table of its functions, and what its errors mean.
#pragma once

#include <string>

#include "abi/cudnn_backend.h"
#include "base/status.hpp"

namespace oocdnn::cuda {

struct Cudnn {
#define OOC_MEMBER(answer, name, parameters) answer(*name) parameters = nullptr;
  OOC_CUDNN_FUNCTIONS(OOC_MEMBER)
#undef OOC_MEMBER
  std::string path;
  int version = 0;  // 10000 * major + 100 * minor + patch

  // Ok, or an error that says what was being done and what cuDNN answered: kUnsupported where cuDNN
  // has nothing for it, kOutOfMemory, kInternal for a mistake of ours, else kDeviceError.
  [[nodiscard]] Status Check(cudnnStatus_t status, const char* what) const;
};

// The cuDNN of this process; opened once, never closed. `path`: "" or the file to open.
// kUnsupported with the remedy where there is none, where it is no cuDNN 9, where a library that it
// cannot do without is missing (it would end the process), or where another copy is in use already.
Result<const Cudnn*> LoadCudnn(const std::string& path);

}  // namespace oocdnn::cuda
