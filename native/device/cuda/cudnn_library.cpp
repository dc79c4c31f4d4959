#include "device/cuda/cudnn_library.hpp"

#include <dlfcn.h>

#include <array>
#include <memory>
#include <mutex>

#include "device/cuda/library_finder.hpp"

namespace oocdnn::cuda {
namespace {

constexpr const char* kRemedy = "pip install nvidia-cudnn-cu13 (or -cu12, as the driver needs)";
constexpr int kMajor = 9;

const LibrarySpec& CudnnSpec() {
  static const LibrarySpec spec{"cuDNN",
                                {"libcudnn.so.9"},
                                {"nvidia/cudnn/lib"},
                                {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"},
                                kRemedy,
                                "OOCDNN_CUDNN_LIBRARY"};
  return spec;
}

// What cuDNN opens by name when it first needs it, and cannot fail to find without ending the
// process. Opened beforehand, the loader finds them by that name.
std::array<LibrarySpec, 2> NeedsOf(bool cuda12) {
  const std::vector<const char*> system{"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"};
  if (cuda12) {
    return {{{"cuBLASLt, which cuDNN needs,",
              {"libcublasLt.so.12"},
              {"nvidia/cublas/lib"},
              system,
              "pip install nvidia-cublas-cu12"},
             {"NVRTC, which cuDNN needs,",
              {"libnvrtc.so.12"},
              {"nvidia/cuda_nvrtc/lib"},
              system,
              "pip install nvidia-cuda-nvrtc-cu12"}}};
  }
  return {{{"cuBLASLt, which cuDNN needs,",
            {"libcublasLt.so.13"},
            {"nvidia/cu13/lib"},
            system,
            "pip install nvidia-cublas"},
           {"NVRTC, which cuDNN needs,",
            {"libnvrtc.so.13"},
            {"nvidia/cu13/lib"},
            system,
            "pip install nvidia-cuda-nvrtc"}}};
}

Status FillTable(const OpenedLibrary& library, Cudnn* cudnn) {
  struct Entry {
    const char* symbol;
    void** slot;
  };
#define OOC_ENTRY(answer, name, parameters) {#name, reinterpret_cast<void**>(&cudnn->name)},
  const Entry entries[] = {OOC_CUDNN_FUNCTIONS(OOC_ENTRY)};
#undef OOC_ENTRY
  for (const Entry& entry : entries) {
    *entry.slot = dlsym(library.handle, entry.symbol);
    if (*entry.slot != nullptr) continue;
    return Error(Code::kUnsupported, "%s has no %s: it is no cuDNN 9; %s", library.path.c_str(),
                 entry.symbol, kRemedy);
  }
  return {};
}

Result<std::unique_ptr<Cudnn>> Open(const std::string& path) {
  OOC_ASSIGN(const OpenedLibrary library, OpenLibrary(CudnnSpec(), path));
  auto cudnn = std::make_unique<Cudnn>();
  OOC_TRY(FillTable(library, cudnn.get()));
  cudnn->path = library.path;
  cudnn->version = static_cast<int>(cudnn->cudnnGetVersion());
  if (cudnn->version / 10000 != kMajor) {
    return Error(Code::kUnsupported,
                 "%s has version %d, and cuDNN 9 (90000 to 99999) is needed; %s",
                 library.path.c_str(), cudnn->version, kRemedy);
  }
  constexpr size_t kCuda13 = 13000;
  for (const LibrarySpec& need : NeedsOf(cudnn->cudnnGetCudartVersion() < kCuda13)) {
    OOC_TRY(OpenLibrary(need, "").status());
  }
  return cudnn;
}

}  // namespace

Status Cudnn::Check(cudnnStatus_t status, const char* what) const {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  char detail[256] = "";
  cudnnGetLastErrorString(detail, sizeof detail);
  const Code code = [status] {
    if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED) {
      return Code::kOutOfMemory;
    }
    if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) return Code::kUnsupported;
    return status / 1000 == CUDNN_STATUS_BAD_PARAM / 1000 ? Code::kInternal : Code::kDeviceError;
  }();
  return Error(code, "cuDNN: %s failed: %s (%d)%s%s", what, cudnnGetErrorString(status), status,
               *detail == '\0' ? "" : ", ", detail);
}

Result<const Cudnn*> LoadCudnn(const std::string& path) {
  static std::mutex mutex;
  static const Cudnn* loaded = nullptr;  // outlives all users
  const std::lock_guard lock(mutex);
  if (loaded == nullptr) {
    OOC_ASSIGN(std::unique_ptr<Cudnn> opened, Open(path));
    loaded = opened.release();
  }
  if (path.empty() || path == loaded->path) return loaded;
  return Error(Code::kUnsupported, "this process uses the cuDNN %s already, and %s was asked for",
               loaded->path.c_str(), path.c_str());
}

}  // namespace oocdnn::cuda
