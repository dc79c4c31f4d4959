#include "base/cache.hpp"

#include <cstdlib>
#include <utility>

#include "base/files.hpp"

namespace oocdnn {

std::string CacheFolder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::string(cache) + "/oocdnn";
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache/oocdnn" : "";
}

uint64_t Hash(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

Result<std::string> ReadKept(const std::string& path) {
  OOC_ASSIGN(FileRead file, ReadFile(path, kMostKept));
  if (!file.there || file.whole) return std::move(file.content);
  return Error(Code::kFileError, "it cannot be read as a file: it has more than %zu bytes",
               kMostKept);
}

}  // namespace oocdnn
