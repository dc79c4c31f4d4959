// FileLock: one process at a time, of those that agree on a file.
#pragma once

#include <chrono>
#include <string>

namespace oocdnn {

class FileLock {
 public:
  // Waits until no other has the file locked, and makes it and the folders above it where it is
  // missing. Holds nothing where that cannot be, as for a symbolic link, which is not followed, or
  // would take longer than `patience`; only in the latter case is it busy. A process that ends
  // gives back what it holds.
  FileLock(const std::string& path, std::chrono::milliseconds patience);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;

  // Whether another holds it.
  [[nodiscard]] bool busy() const { return file_ >= 0 && !held_; }

 private:
  int file_ = -1;
  bool held_ = false;
};

}  // namespace oocdnn
