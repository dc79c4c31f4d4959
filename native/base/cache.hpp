// Files that this library keeps for the user from one process to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.hpp"

namespace oocdnn {

// $XDG_CACHE_HOME/oocdnn, else $HOME/.cache/oocdnn; "" where neither is an absolute path. The
// folder need not exist.
std::string CacheFolder();

// Tells contents apart in file names (FNV-1a); no protection against anybody.
constexpr uint64_t kHashSeed = 0xcbf29ce484222325u;
uint64_t Hash(std::string_view text, uint64_t hash = kHashSeed);

// The content of a file; "" where it is missing or empty. kFileError for what is no regular file,
// has more than kMostKept bytes or cannot be read.
constexpr size_t kMostKept = size_t{64} << 20;
Result<std::string> ReadKept(const std::string& path);

}  // namespace oocdnn
