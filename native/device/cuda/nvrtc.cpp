#include "device/cuda/nvrtc.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/nvrtc.h"
#include "base/cache.hpp"
#include "base/files.hpp"
#include "base/log.hpp"
#include "device/cuda/embedded.hpp"
#include "device/cuda/library_finder.hpp"

namespace oocdnn::cuda {
namespace {

const LibrarySpec& NvrtcSpec() {
  static const LibrarySpec spec{
      "NVRTC, which compiles the CUDA kernels at first use,",
      {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
      {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"},
      {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"},
      "pip install nvidia-cuda-nvrtc, or build oocdnn with nvcc for this GPU "
      "(OOCDNN_CUDA_ARCHITECTURES)",
      "OOCDNN_NVRTC_LIBRARY"};
  return spec;
}

struct Nvrtc {
#define OOC_MEMBER(name, parameters) nvrtcResult(*name) parameters = nullptr;
  OOC_NVRTC_FUNCTIONS(OOC_MEMBER)
#undef OOC_MEMBER
  std::string path;
  int major = 0, minor = 0;
};

Result<Nvrtc> OpenNvrtc(const std::string& path) {
  OOC_ASSIGN(const OpenedLibrary library, OpenLibrary(NvrtcSpec(), path));
  Nvrtc nvrtc;
  nvrtc.path = library.path;
#define OOC_FILL(name, parameters)                                                   \
  nvrtc.name = reinterpret_cast<decltype(nvrtc.name)>(dlsym(library.handle, #name)); \
  if (nvrtc.name == nullptr) {                                                       \
    return Error(Code::kUnsupported, "%s has no %s: it is too old or no NVRTC",      \
                 library.path.c_str(), #name);                                       \
  }
  OOC_NVRTC_FUNCTIONS(OOC_FILL)
#undef OOC_FILL
  nvrtc.nvrtcVersion(&nvrtc.major, &nvrtc.minor);
  return nvrtc;
}

std::string LogOf(const Nvrtc& nvrtc, nvrtcProgram program) {
  size_t bytes = 0;
  if (nvrtc.nvrtcGetProgramLogSize(program, &bytes) != 0 || bytes == 0) return "no log";
  std::string log(bytes, '\0');
  if (nvrtc.nvrtcGetProgramLog(program, log.data()) != 0) return "no log";
  constexpr size_t kLongest = 2000;
  return log.substr(0, std::min(log.find('\0'), kLongest));
}

Result<std::string> BinaryOf(const Nvrtc& nvrtc, nvrtcProgram program, int major, int minor) {
  // 9.0 has instructions that no other GPU has; the kernels use them.
  const char* const own = major == 9 && minor == 0 ? "a" : "";
  const std::string target = Format("--gpu-architecture=sm_%d%d%s", major, minor, own);
  const char* const options[] = {target.c_str(), "--std=c++17", "--fmad=false"};
  if (nvrtc.nvrtcCompileProgram(program, 3, options) != 0) {
    return Error(Code::kUnsupported,
                 "NVRTC %d.%d (%s) does not compile the kernels for sm_%d%d: %s", nvrtc.major,
                 nvrtc.minor, nvrtc.path.c_str(), major, minor, LogOf(nvrtc, program).c_str());
  }
  size_t bytes = 0;
  std::string binary;
  if (nvrtc.nvrtcGetCUBINSize(program, &bytes) == 0) binary.resize(bytes);
  if (binary.empty() || nvrtc.nvrtcGetCUBIN(program, binary.data()) != 0) {
    return Error(Code::kDeviceError, "NVRTC %d.%d gives no binary", nvrtc.major, nvrtc.minor);
  }
  return binary;
}

Result<std::string> Compile(const Nvrtc& nvrtc, int major, int minor) {
  const auto files = KernelSources();
  const std::string unit(files[0].text);
  std::vector<const char*> names, texts;
  for (const EmbeddedFile& file : files.subspan(1)) {
    names.push_back(file.name);
    texts.push_back(file.text.data());
  }
  nvrtcProgram program = nullptr;
  const int made =
      nvrtc.nvrtcCreateProgram(&program, unit.c_str(), files[0].name,
                               static_cast<int>(names.size()), texts.data(), names.data());
  if (made != 0) return Error(Code::kDeviceError, "NVRTC refuses a program (%d)", made);
  auto binary = BinaryOf(nvrtc, program, major, minor);
  nvrtc.nvrtcDestroyProgram(&program);
  return binary;
}

// The first line of a kept file, which tells damage.
std::string HeaderOf(std::string_view binary) {
  return Format("oocdnn-kernels 1 %016llx %zu\n", static_cast<unsigned long long>(Hash(binary)),
                binary.size());
}

// A kept binary runs on the GPU with all that the process may do there, so that one that another
// user may have written is not taken. Without a value, and the reason in the log, where there is
// none to take.
std::optional<std::string> ReadKernels(const std::string& path) {
  Result<FileRead> read = ReadFile(path, kMostKept);
  if (read.ok() && !read->there) return std::nullopt;
  std::string why = read.status().message();
  if (read.ok() && IsForeign(read.value())) {
    why = "another user owns it or may write it; have OOCDNN_CACHE name a folder of your own";
  } else if (read.ok()) {
    const size_t end = read->content.find('\n');
    const size_t head = end == std::string::npos ? read->content.size() : end + 1;
    std::string binary = read->content.substr(head);
    if (read->whole && read->content.substr(0, head) == HeaderOf(binary)) return binary;
    why = "it is damaged, or of another version";
  }
  Log(LogLevel::kWarn, "the CUDA kernels in %s are not used, but compiled again: %s", path.c_str(),
      why.c_str());
  return std::nullopt;
}

}  // namespace

Result<std::string> CompiledKernels(int major, int minor, const std::string& nvrtc_path,
                                    const std::string& cache_folder) {
  const std::string folder = cache_folder.empty() ? CacheFolder() : cache_folder;
  uint64_t hash = kHashSeed;
  for (const EmbeddedFile& file : KernelSources()) hash = Hash(file.text, hash);
  const std::string path = folder + Format("/kernels-%016llx-sm_%d%d.cubin",
                                           static_cast<unsigned long long>(hash), major, minor);
  if (!folder.empty()) {
    if (std::optional<std::string> kept = ReadKernels(path)) return std::move(*kept);
  }
  OOC_ASSIGN(const Nvrtc nvrtc, OpenNvrtc(nvrtc_path));
  Log(LogLevel::kWarn, "compiling the CUDA kernels for sm_%d%d with NVRTC %d.%d: two minutes, once",
      major, minor, nvrtc.major, nvrtc.minor);
  OOC_ASSIGN(std::string binary, Compile(nvrtc, major, minor));
  const Status kept = folder.empty() ? Status() : ReplaceFile(path, HeaderOf(binary) + binary);
  if (!kept.ok()) Log(LogLevel::kInfo, "the compiled kernels %s", kept.message().c_str());
  return binary;
}

}  // namespace oocdnn::cuda
