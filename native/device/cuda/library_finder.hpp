// Opens NVIDIA's libraries (NVRTC, cuDNN and what they need) wherever a user may have them.
//
// In this order: the path that was asked for; a copy that this process has already mapped; a pip
// wheel in a site-packages folder that this process uses; the system's own search. Where the
// drop-in is found in the place of cuDNN, it is the library that the drop-in stands for.
#pragma once

#include <string>
#include <vector>

#include "base/status.hpp"

namespace oocdnn::cuda {

struct LibrarySpec {
  const char* name;                         // for people: "NVRTC"
  std::vector<const char*> files;           // most wanted first: "libnvrtc.so.13", ...
  std::vector<const char*> wheel_folders;   // below site-packages: "nvidia/cu13/lib", ...
  std::vector<const char*> system_folders;  // beside the loader's own: "/usr/local/cuda/lib64"
  const char* remedy;                       // "pip install nvidia-cuda-nvrtc"
  const char* variable = nullptr;           // that a path is from: "OOCDNN_NVRTC_LIBRARY"
};

struct OpenedLibrary {
  void* handle = nullptr;
  std::string path;
};

// Never closed again. `path`: "" or a file to open and no other. kUnsupported says what is missing
// and what helps.
Result<OpenedLibrary> OpenLibrary(const LibrarySpec& spec, const std::string& path);

}  // namespace oocdnn::cuda
