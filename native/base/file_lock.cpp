#include "base/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

namespace oocdnn {
namespace {

// Below 0 where there is no file to lock; a link or a pipe that somebody has put there is none. One
// of another user may be locked without being written.
int OpenLock(const std::string& path) {
  constexpr int kFlags = O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  if (path.empty()) return -1;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  int file = open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0666);
  if (file < 0 && errno == EACCES) file = open(path.c_str(), O_RDONLY | kFlags);
  struct stat found{};
  if (file >= 0 && (fstat(file, &found) != 0 || !S_ISREG(found.st_mode))) {
    close(std::exchange(file, -1));
  }
  return file;
}

}  // namespace

FileLock::FileLock(const std::string& path, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPause(20);
  file_ = OpenLock(path);
  const Clock::time_point end = Clock::now() + patience;
  while (file_ >= 0 && !held_) {
    held_ = flock(file_, LOCK_EX | LOCK_NB) == 0;
    if (held_) return;
    if (errno != EWOULDBLOCK && errno != EINTR) {  // no locks on this file system: nobody has one
      close(std::exchange(file_, -1));
      return;
    }
    if (Clock::now() >= end) return;
    std::this_thread::sleep_for(kPause);
  }
}

FileLock::FileLock(FileLock&& other) noexcept
    : file_(std::exchange(other.file_, -1)), held_(std::exchange(other.held_, false)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(held_, other.held_);
  return *this;
}

// Unlocked by name: a child of a fork has the same open file and would hold it on.
FileLock::~FileLock() {
  if (held_) flock(file_, LOCK_UN);
  if (file_ >= 0) close(file_);
}

}  // namespace oocdnn
