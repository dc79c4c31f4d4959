// FileLock: one process at a time, of those that agree on a file.
#pragma once

#include <chrono>
#include <string>

namespace oocdnn {

class FileLock {
 public:
  // Waits until no other has the file locked, and makes it and the folders above it where it is
  // missing. Holds nothing where that cannot be, or took longer than `patience`: what is done then
  // is done as if nobody were there. A process that ends gives back what it holds.
  FileLock(const std::string& path, std::chrono::milliseconds patience);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  [[nodiscard]] bool held() const { return held_; }

 private:
  int file_ = -1;
  bool held_ = false;
};

}  // namespace oocdnn
