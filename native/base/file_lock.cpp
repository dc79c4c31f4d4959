#include "base/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

namespace oocdnn {

FileLock::FileLock(const std::string& path, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPause(20);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
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
