// Opens the oneDNN plug-in. It is never closed: its threads and its tables outlive any device.
#include <dlfcn.h>

#include <atomic>
#include <optional>
#include <string>

#include "base/config.hpp"
#include "base/log.hpp"
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

// The engine of the plug-in at `path`, or why there is none.
std::unique_ptr<CpuEngine> EngineOf(const std::string& path, std::string* why) {
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

}  // namespace

std::unique_ptr<CpuEngine> LoadOneDnnEngine(std::string* why) {
  const std::optional<std::string> given = Get(Var::kOneDnnLibrary);
  auto engine = EngineOf(given.value_or(OwnFolder() + kOneDnnPluginFile), why);
  if (engine != nullptr || !given) return engine;
  *why = Format("%s=%s: %s", InfoOf(Var::kOneDnnLibrary).name, given->c_str(), why->c_str());
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    Log(LogLevel::kWarn, "%s; oneDNN is not used, name its plug-in or unset the variable",
        why->c_str());
  }
  return nullptr;
}

}  // namespace oocdnn::cpu
