// The kernels as they travel in this library: their sources, and the fat binary where nvcc was
// there to make one.
#pragma once

#include <span>
#include <string_view>

namespace oocdnn::cuda {

struct EmbeddedFile {
  const char* name;  // as #include names it
  std::string_view text;
};

// The first is the translation unit, the others are its headers. Each text ends in a null byte.
std::span<const EmbeddedFile> KernelSources();

// Empty where the library was built without nvcc.
std::string_view KernelFatBinary();
// What it serves: "sm_75 sm_80 ..."; "" where there is none.
const char* KernelTargets();

}  // namespace oocdnn::cuda
