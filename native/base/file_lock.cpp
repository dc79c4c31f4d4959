#include "base/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <thread>

namespace oocdnn {

FileLock::FileLock(const std::string& path, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kPause(20);
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const Clock::time_point end = Clock::now() + patience;
  while (file_ >= 0 && !held_) {
    held_ = flock(file_, LOCK_EX | LOCK_NB) == 0;
    if (held_ || (errno != EWOULDBLOCK && errno != EINTR) || Clock::now() >= end) return;
    std::this_thread::sleep_for(kPause);
  }
}

// Unlocked by name: a child of a fork has the same open file and would hold it on.
FileLock::~FileLock() {
  if (held_) flock(file_, LOCK_UN);
  if (file_ >= 0) close(file_);
}

}  // namespace oocdnn
