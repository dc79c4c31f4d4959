#include "device/cuda/driver.hpp"

#include <dlfcn.h>

#include <fstream>
#include <string>

namespace oocdnn::cuda {
namespace {

constexpr const char* kDriverFile = "libcuda.so.1";
constexpr int kLeastVersion = 12000;

// What helps, for the answers where something does; null elsewhere.
const char* RemedyOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_NO_DEVICE:
      return "no NVIDIA GPU is visible; look at CUDA_VISIBLE_DEVICES, or use the CPU device";
    case CUDA_ERROR_NOT_INITIALIZED:
      return "the CUDA driver cannot be used in a child that was forked after its parent used it; "
             "start the child with spawn or forkserver";
    case CUDA_ERROR_DEINITIALIZED: return "the process is ending, and the driver has shut down";
    case CUDA_ERROR_STUB_LIBRARY:
      return "the toolkit's stub of libcuda.so was found in place of the driver; take the stubs "
             "folder off the library path";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return "libcuda.so and the kernel module are of different versions; restart the machine";
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return "the system's GPU services (fabric manager) are not running";
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
      return "somebody else has pinned a part of this memory";
    default: break;
  }
  if (result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
      result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD) {
    return "out-of-core work cannot be captured into a CUDA graph";
  }
  return nullptr;
}

// Answers after which every further call on the context fails.
bool LosesContext(CUresult result) {
  return result == CUDA_ERROR_ECC_UNCORRECTABLE || result == CUDA_ERROR_ILLEGAL_ADDRESS ||
         result == CUDA_ERROR_LAUNCH_TIMEOUT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED ||
         result == CUDA_ERROR_ASSERT ||
         (result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED);
}

Code CodeOf(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return Code::kOutOfMemory;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_STUB_LIBRARY: return Code::kUnsupported;
    default: return Code::kDeviceError;
  }
}

Status FillTable(void* library, Driver* driver) {
  struct Entry {
    const char* symbol;
    void** slot;
  };
#define OOC_ENTRY(name, symbol, parameters) {symbol, reinterpret_cast<void**>(&driver->name)},
  const Entry entries[] = {OOC_CUDA_DRIVER_FUNCTIONS(OOC_ENTRY)};
#undef OOC_ENTRY
  for (const Entry& entry : entries) {
    *entry.slot = dlsym(library, entry.symbol);
    if (*entry.slot != nullptr) continue;
    return Error(Code::kUnsupported,
                 "%s has no %s: it is older than CUDA 12.0; driver 525 or later is needed",
                 kDriverFile, entry.symbol);
  }
  return {};
}

Result<const Driver*> Load() {
  void* const library = dlopen(kDriverFile, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error(Code::kUnsupported,
                 "there is no CUDA driver (%s); install NVIDIA's driver, 525 or later, or use the "
                 "CPU device",
                 dlerror());
  }
  static Driver driver;
  OOC_TRY(FillTable(library, &driver));
  OOC_CUDA(driver, cuInit, 0);
  OOC_CUDA(driver, cuDriverGetVersion, &driver.version);
  if (driver.version < kLeastVersion) {
    return Error(Code::kUnsupported,
                 "the driver supports CUDA %d.%d, and 12.0 is needed: install driver 525 or later",
                 driver.version / 1000, driver.version % 1000 / 10);
  }
  return &driver;
}

// The kernel module's version: the first word that begins with a digit, "" where there is none.
std::string ModuleVersion() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    if (word[0] >= '0' && word[0] <= '9') return word;
  }
  return "";
}

}  // namespace

std::string Driver::Text() const {
  const std::string module = ModuleVersion();
  return module + (module.empty() ? "" : " ") +
         Format("for CUDA %d.%d", version / 1000, version % 1000 / 10);
}

Status Driver::Check(CUresult result, const char* what) const {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  std::string message = Format("%s failed: %s (%d), %s", what, name ? name : "unknown error",
                               result, text ? text : "no text");
  if (const char* const remedy = RemedyOf(result)) message.append("; ").append(remedy);
  if (LosesContext(result)) {
    message +=
        "; the CUDA context is lost, and with it all that this process has on the GPU: restart "
        "the process";
  }
  return {CodeOf(result), std::move(message)};
}

Result<const Driver*> LoadDriver() {
  static const auto* const loaded = new Result<const Driver*>(Load());  // outlives all users
  return *loaded;
}

}  // namespace oocdnn::cuda
