// Files that this library keeps for the user from one process to the next.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace oocdnn {

// $XDG_CACHE_HOME/oocdnn where that is an absolute path, else ~/.cache/oocdnn; "" without a home.
// The folder need not exist.
std::string CacheFolder();

// Tells contents apart in file names (FNV-1a); no protection against anybody.
constexpr uint64_t kHashSeed = 0xcbf29ce484222325u;
uint64_t Hash(std::string_view text, uint64_t hash = kHashSeed);

// The content of a file; none where it is missing, empty or unreadable.
std::optional<std::string> ReadKept(const std::string& path);

// Writes a file and the folders above it. It appears under its name when it is complete, so that
// no process ever reads half of it. False where it could not be written; nothing is left then.
bool Keep(const std::string& path, const std::string& content);

}  // namespace oocdnn
