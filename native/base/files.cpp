#include "base/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace oocdnn {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { static_cast<void>(Close()); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const { return fd_; }
  // Whether all that was written has arrived, as far as the system says.
  bool Close() { return fd_ < 0 || close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

Status NotRead(const char* why) {
  return Error(Code::kFileError, "it cannot be read as a file: %s", why);
}

Status NotWritten(const std::string& path) {
  return Error(Code::kFileError, "cannot be written to %s: %s", path.c_str(), std::strerror(errno));
}

bool IsOurs(uid_t owner) { return owner == geteuid() || owner == 0; }

Status ReadInto(int fd, size_t most, FileRead* file) {
  constexpr size_t kPiece = size_t{1} << 16;
  std::string& content = file->content;
  for (;;) {
    const size_t begin = content.size();
    content.resize(begin + std::min(kPiece, most + 1 - begin));
    const ssize_t count = read(fd, content.data() + begin, content.size() - begin);
    content.resize(begin + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return NotRead(std::strerror(errno));
    file->whole = count == 0;
    if (file->whole || content.size() > most) break;
  }
  content.resize(std::min(content.size(), most));
  return {};
}

bool WriteAll(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = write(fd, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    content.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

// A new file beside `path`, which only its owner may write: `draft` is its name.
int MakeDraft(const std::string& path, std::string* draft) {
  static std::atomic<unsigned> made{0};
  constexpr int kTries = 100;
  int fd = -1;
  for (int i = 0; i < kTries && fd < 0; ++i) {
    *draft = path + Format(".%ld-%u", static_cast<long>(getpid()), made++);
    fd = open(draft->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno != EEXIST) break;
  }
  return fd;
}

}  // namespace

Result<FileRead> ReadFile(const std::string& path, size_t most) {
  FileRead file;
  const Descriptor opened(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (opened.get() < 0 && (errno == ENOENT || errno == ENOTDIR)) return file;
  struct stat found{};
  if (opened.get() < 0 || fstat(opened.get(), &found) != 0) return NotRead(std::strerror(errno));
  if (!S_ISREG(found.st_mode)) return NotRead("it is no regular file");
  file.there = true;
  file.owner = found.st_uid;
  file.mode = found.st_mode;
  OOC_TRY(ReadInto(opened.get(), most, &file));
  return file;
}

bool IsForeign(const FileRead& file) {
  return !IsOurs(file.owner) || (file.mode & (S_IWGRP | S_IWOTH)) != 0;
}

bool IsForeignLink(const std::string& path) {
  struct stat found{};
  return lstat(path.c_str(), &found) == 0 && S_ISLNK(found.st_mode) && !IsOurs(found.st_uid);
}

Status ReplaceFile(const std::string& path, const std::string& content) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  std::string draft;
  Descriptor file(MakeDraft(path, &draft));
  if (file.get() < 0) return NotWritten(path);
  const bool written = WriteAll(file.get(), content) && file.Close();
  if (written && std::rename(draft.c_str(), path.c_str()) == 0) return {};
  Status failure = NotWritten(path);
  unlink(draft.c_str());
  return failure;
}

int OpenForWriting(const char* path, int flags) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, 0666);
  if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return fd;
}

Status WriteFile(const std::string& path, const std::string& content) {
  Descriptor file(OpenForWriting(path.c_str(), O_TRUNC));
  if (file.get() >= 0 && WriteAll(file.get(), content) && file.Close()) return {};
  return NotWritten(path);
}

}  // namespace oocdnn
