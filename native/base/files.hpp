// Files in folders that other users, too, may write to: what is there may be a link, a pipe or a
// device, and none of these makes a call follow it or wait.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "base/status.hpp"

namespace oocdnn {

struct FileRead {
  bool there = false;
  bool whole = false;   // `content` is all of it
  std::string content;  // its first bytes, as many as were asked for
  uid_t owner = 0;
  mode_t mode = 0;
};
// Reads up to `most` bytes of a regular file; !there where there is no file of that name.
// kFileError for what is no regular file or cannot be read: "it cannot ...".
Result<FileRead> ReadFile(const std::string& path, size_t most);

// Whether a user other than this process's, or root, may have written the file.
bool IsForeign(const FileRead& file);

// Whether `path` is a symbolic link that another user than this process's, or root, has made.
bool IsForeignLink(const std::string& path);

// Writes a file and the folders above it in place of what has the name. It appears under its name
// when it is complete, so that no process ever reads half of it; a link of that name is replaced,
// not followed. kFileError, "cannot be written to ...", where that fails; nothing is left then.
Status ReplaceFile(const std::string& path, const std::string& content);

// Opens a path that the user named for writing with open's `flags`, such as O_APPEND: below 0, with
// errno, where that fails, as for a pipe that nobody reads.
int OpenForWriting(const char* path, int flags);

// Writes a path that the user named, such as /dev/stdout, in place. Fails as ReplaceFile.
Status WriteFile(const std::string& path, const std::string& content);

}  // namespace oocdnn
