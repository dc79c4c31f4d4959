#include "exec/file_io.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace oocdnn {
namespace {

// One pread or pwrite never asks for more; the kernel would cut it at 2^31 anyway.
constexpr int64_t kLargestTransfer = int64_t{1} << 30;

Status FileError(const char* what, int64_t offset, int64_t bytes) {
  const int number = errno;
  return Error(Code::kFileError, "%s %lld bytes at offset %lld failed: %s", what,
               static_cast<long long>(bytes), static_cast<long long>(offset), std::strerror(number))
      .WithDetail(number);
}

Status ReadRun(int fd, int64_t offset, char* memory, int64_t bytes) {
  while (bytes > 0) {
    const ssize_t got =
        pread(fd, memory, static_cast<size_t>(std::min(bytes, kLargestTransfer)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("reading", offset, bytes);
    if (got == 0) {
      return Error(Code::kFileError, "the file ends at offset %lld; %lld more bytes were expected",
                   static_cast<long long>(offset), static_cast<long long>(bytes));
    }
    memory += got;
    offset += got;
    bytes -= got;
  }
  return {};
}

Status WriteRun(int fd, int64_t offset, const char* memory, int64_t bytes) {
  while (bytes > 0) {
    const ssize_t put =
        pwrite(fd, memory, static_cast<size_t>(std::min(bytes, kLargestTransfer)), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return FileError("writing", offset, bytes);
    memory += put;
    offset += put;
    bytes -= put;
  }
  return {};
}

}  // namespace

Status ReadBox(const FileTensor& file, const Dims& begin, const Dims& end, void* memory) {
  const Runs runs(file.packing, begin, end, false);
  Runs::Cursor at(runs, 0);
  for (int64_t i = 0; i < runs.count(); ++i, at.Next()) {
    OOC_TRY(ReadRun(file.fd, file.offset + at.tensor(), static_cast<char*>(memory) + at.packed(),
                    runs.bytes()));
  }
  return {};
}

Status WriteBox(const FileTensor& file, const Dims& begin, const Dims& end, const void* memory) {
  const Runs runs(file.packing, begin, end, true);
  Runs::Cursor at(runs, 0);
  for (int64_t i = 0; i < runs.count(); ++i, at.Next()) {
    OOC_TRY(WriteRun(file.fd, file.offset + at.tensor(),
                     static_cast<const char*>(memory) + at.packed(), runs.bytes()));
  }
  return {};
}

}  // namespace oocdnn
