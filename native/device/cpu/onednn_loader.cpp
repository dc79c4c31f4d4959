// Opens the oneDNN plug-in. It is never closed: its threads and its tables outlive any device.
#include <dlfcn.h>

#include <string>

#include "base/config.hpp"
#include "device/cpu/onednn_abi.hpp"

namespace oocdnn::cpu {
namespace {

// The folder of the library (or program) that this code is part of, with its slash.
std::string OwnFolder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0) return "";
  const std::string path = info.dli_fname == nullptr ? "" : info.dli_fname;
  return path.substr(0, path.rfind('/') + 1);
}

}  // namespace

std::unique_ptr<CpuEngine> LoadOneDnnEngine(std::string* why) {
  const std::string path = Get(Var::kOneDnnLibrary).value_or(OwnFolder() + kOneDnnPluginFile);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    *why = reason == nullptr ? "cannot open " + path : reason;
    return nullptr;
  }
  const auto entry = reinterpret_cast<OneDnnPluginEntry>(dlsym(library, kOneDnnPluginEntry));
  if (entry == nullptr) {
    *why = path + " has no entry point " + kOneDnnPluginEntry;
    return nullptr;
  }
  const char* reason = nullptr;
  std::unique_ptr<CpuEngine> engine(entry(kOneDnnAbiVersion, &reason));
  if (engine == nullptr) *why = reason == nullptr ? path + " gave no engine" : reason;
  return engine;
}

}  // namespace oocdnn::cpu
