#include "exec/file_io.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "base/checked.hpp"

namespace oocdnn {
namespace {

// One pread or pwrite never asks for more; the kernel would cut it at 2^31 anyway.
constexpr int64_t kLargestTransfer = int64_t{1} << 30;

// Up to this stride of the fastest dimension, reading the gaps along is cheaper than going around.
constexpr int64_t kLargestGap = 8;

bool ReadsGaps(int64_t stride) { return stride > 1 && stride <= kLargestGap; }

// Dimensions from the largest to the smallest step in the file.
std::array<int, 6> SlowestFirst(const Dims& stride) {
  std::array<int, 6> order{};
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return std::llabs(stride[a]) > std::llabs(stride[b]); });
  return order;
}

struct Runs {
  std::vector<int> outer;  // dimensions that are looped over
  int64_t elements = 1;    // of one run
};

// The trailing dimensions that one transfer covers: contiguous in the file and complete in it.
// A gapped fastest dimension may still be read in one piece, but never written.
Runs RunsOf(const FileTensor& file, const Dims& extent, bool writing) {
  const std::array<int, 6> order = SlowestFirst(file.stride);
  Runs runs;
  int64_t next = 1;
  int i = 5;
  for (; i >= 0; --i) {
    const int d = order[i];
    if (extent[d] == 1) continue;
    const bool gapped = next == 1 && ReadsGaps(file.stride[d]) && !writing;
    if (file.stride[d] != next && !gapped) break;
    runs.elements = (extent[d] - 1) * file.stride[d] + runs.elements;
    if (gapped) {
      --i;
      break;
    }
    next = runs.elements;
  }
  for (int j = 0; j <= i; ++j) {
    if (extent[order[j]] > 1) runs.outer.push_back(order[j]);
  }
  return runs;
}

Status FileError(const char* what, int64_t offset, int64_t bytes) {
  return Error(Code::kFileError, "%s %lld bytes at offset %lld failed: %s", what,
               static_cast<long long>(bytes), static_cast<long long>(offset), std::strerror(errno));
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

// Calls fn(file offset in bytes, offset into the packed box in bytes) for each run.
Status ForEachRun(const FileTensor& file, const Dims& begin, const Dims& extent, const Runs& runs,
                  const std::function<Status(int64_t, int64_t)>& fn) {
  const PackedBox packed = PackedLayout(file, extent);
  const int64_t size = SizeOf(file.dtype);
  int64_t start = 0;
  for (int d = 0; d < 6; ++d) start += begin[d] * file.stride[d];
  Dims at{};
  while (true) {
    int64_t from = start, to = 0;
    for (const int d : runs.outer) {
      from += at[d] * file.stride[d];
      to += at[d] * packed.stride[d];
    }
    OOC_TRY(fn(file.offset + from * size, to * size));
    int i = static_cast<int>(runs.outer.size()) - 1;
    for (; i >= 0; --i) {
      const int d = runs.outer[static_cast<size_t>(i)];
      if (++at[d] < extent[d]) break;
      at[d] = 0;
    }
    if (i < 0) return {};
  }
}

Dims ExtentOf(const Dims& begin, const Dims& end) {
  Dims extent{};
  for (int d = 0; d < 6; ++d) extent[d] = end[d] - begin[d];
  return extent;
}

bool Empty(const Dims& extent) {
  return std::any_of(extent.begin(), extent.end(), [](int64_t e) { return e <= 0; });
}

}  // namespace

PackedBox PackedLayout(const FileTensor& file, const Dims& extent) {
  PackedBox packed;
  int64_t next = 1;
  const std::array<int, 6> order = SlowestFirst(file.stride);
  for (int i = 5; i >= 0; --i) {
    const int d = order[i];
    const bool gapped = next == 1 && extent[d] > 1 && ReadsGaps(file.stride[d]);
    const int64_t step = gapped ? file.stride[d] : 1;
    packed.stride[d] = extent[d] > 1 ? next * step : next;
    next = Mul(next, Mul(extent[d], step));
  }
  packed.bytes = Mul(next, SizeOf(file.dtype));
  return packed;
}

Status ReadBox(const FileTensor& file, const Dims& begin, const Dims& end, void* memory) {
  const Dims extent = ExtentOf(begin, end);
  if (Empty(extent)) return {};
  const Runs runs = RunsOf(file, extent, false);
  const int64_t bytes = runs.elements * SizeOf(file.dtype);
  return ForEachRun(file, begin, extent, runs, [&](int64_t offset, int64_t to) {
    return ReadRun(file.fd, offset, static_cast<char*>(memory) + to, bytes);
  });
}

Status WriteBox(const FileTensor& file, const Dims& begin, const Dims& end, const void* memory) {
  const Dims extent = ExtentOf(begin, end);
  if (Empty(extent)) return {};
  const Runs runs = RunsOf(file, extent, true);
  const int64_t bytes = runs.elements * SizeOf(file.dtype);
  return ForEachRun(file, begin, extent, runs, [&](int64_t offset, int64_t from) {
    return WriteRun(file.fd, offset, static_cast<const char*>(memory) + from, bytes);
  });
}

}  // namespace oocdnn
