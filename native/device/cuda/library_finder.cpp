#include "device/cuda/library_finder.hpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string_view>

#include "abi/dropin.h"
#include "base/log.hpp"

namespace oocdnn::cuda {
namespace {

// The paths of all objects that this process has mapped, our own among them.
std::vector<std::string> MappedPaths() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* list) {
        if (info->dlpi_name != nullptr && *info->dlpi_name != '\0') {
          static_cast<std::vector<std::string>*>(list)->emplace_back(info->dlpi_name);
        }
        return 0;
      },
      &paths);
  return paths;
}

std::string_view FileOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// The site-packages folders that mapped extension modules come from.
std::vector<std::string> SitePackages(const std::vector<std::string>& mapped) {
  std::vector<std::string> sites;
  for (const std::string& path : mapped) {
    for (const std::string_view name : {"/site-packages/", "/dist-packages/"}) {
      const size_t at = path.find(name);
      if (at == std::string::npos) continue;
      std::string site = path.substr(0, at + name.size());
      if (std::find(sites.begin(), sites.end(), site) == sites.end()) {
        sites.push_back(std::move(site));
      }
    }
  }
  return sites;
}

// Where the library may lie, best first; paths without a slash are left to the loader.
std::vector<std::string> Candidates(const LibrarySpec& spec) {
  const std::vector<std::string> mapped = MappedPaths();
  std::vector<std::string> candidates;
  for (const std::string& path : mapped) {
    for (const char* file : spec.files) {
      if (FileOf(path) == file) candidates.push_back(path);
    }
  }
  for (const std::string& site : SitePackages(mapped)) {
    for (const char* folder : spec.wheel_folders) {
      for (const char* file : spec.files) {
        std::string path = site + folder + "/" + file;
        if (access(path.c_str(), R_OK) == 0) candidates.push_back(std::move(path));
      }
    }
  }
  for (const char* file : spec.files) {
    candidates.emplace_back(file);
    for (const char* folder : spec.system_folders) {
      candidates.push_back(std::string(folder) + "/" + file);
    }
  }
  return candidates;
}

// The drop-in, where it is preloaded, has cuDNN's name; it knows the library that it stands for.
OpenedLibrary BehindDropin(OpenedLibrary opened) {
  using Real = decltype(&oocdnn_dropin_real);
  const auto real = reinterpret_cast<Real>(dlsym(opened.handle, "oocdnn_dropin_real"));
  if (real == nullptr) return opened;
  const char* const path = real();
  void* const handle = path != nullptr ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  return {handle, path != nullptr ? path : ""};
}

}  // namespace

Result<OpenedLibrary> OpenLibrary(const LibrarySpec& spec, const std::string& path) {
  const std::vector<std::string> candidates =
      path.empty() ? Candidates(spec) : std::vector<std::string>{path};
  std::string first_error;
  for (const std::string& candidate : candidates) {
    void* const handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) {
      OpenedLibrary opened = BehindDropin({handle, candidate});
      if (opened.handle != nullptr) return opened;
    }
    if (const char* const error = dlerror(); first_error.empty() && error != nullptr) {
      first_error = error;
    }
  }
  if (!path.empty() && spec.variable != nullptr) {
    first_error = Format("%s=%s: %s", spec.variable, path.c_str(), first_error.c_str());
    static std::atomic<bool> said{false};
    if (!said.exchange(true)) {
      Log(LogLevel::kWarn, "%s cannot be opened (%s)", spec.name, first_error.c_str());
    }
  }
  return Error(Code::kUnsupported, "%s cannot be opened (%s); %s", spec.name, first_error.c_str(),
               spec.remedy);
}

}  // namespace oocdnn::cuda
