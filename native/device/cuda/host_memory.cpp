#include "device/cuda/host_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/checked.hpp"
#include "base/thread.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int64_t kPage = 4096, kHugePage = int64_t{2} << 20;
constexpr int64_t kTouchPiece = int64_t{64} << 20;  // bytes worth a thread
constexpr int kMostThreads = 12;

int64_t Mapped(int64_t bytes) { return RoundUp(std::max<int64_t>(bytes, 1), kPage); }

// A mapping that begins at a multiple of the huge page where it is that large; null on failure.
char* MapPages(int64_t bytes) {
  const int64_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* const raw = mmap(nullptr, static_cast<size_t>(bytes + slack), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* const base = static_cast<char*>(raw);
  if (slack == 0) return base;
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(raw) % kHugePage);
  const int64_t head = past == 0 ? 0 : kHugePage - past;
  if (head > 0) munmap(base, static_cast<size_t>(head));
  if (slack > head) munmap(base + head + bytes, static_cast<size_t>(slack - head));
  madvise(base + head, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return base + head;
}

void TouchPages(char* base, int64_t bytes) {
  const auto touch = [base](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kPage) {
      *const_cast<volatile char*>(base + at) = 0;
    }
  };
  const int64_t cores = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  const int64_t count =
      std::clamp<int64_t>(bytes / kTouchPiece, 1, std::min<int64_t>(cores, kMostThreads));
  const int64_t piece = RoundUp(CeilDiv(bytes, count), kHugePage);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(count));
  for (int64_t begin = piece; begin < bytes; begin += piece) {
    const int64_t end = std::min(begin + piece, bytes);
    Result<std::thread> thread = StartThread("oocdnn-touch", [=] { touch(begin, end); });
    if (thread.ok()) {
      threads.push_back(std::move(thread).value());
    } else {
      touch(begin, end);
    }
  }
  touch(0, std::min(piece, bytes));
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Result<void*> AllocatePinned(const Driver& driver, int64_t bytes) {
  const int64_t mapped = Mapped(bytes);
  char* const base = MapPages(mapped);
  if (base == nullptr) {
    return Error(Code::kOutOfMemory, "the system has no %lld bytes of host memory",
                 static_cast<long long>(bytes));
  }
  TouchPages(base, mapped);
  madvise(base, static_cast<size_t>(mapped), MADV_DONTFORK);
  Status pinned = Pin(driver, base, mapped);
  if (pinned.ok()) return static_cast<void*>(base);
  munmap(base, static_cast<size_t>(mapped));
  return pinned;
}

Status Pin(const Driver& driver, void* memory, int64_t bytes) {
  return driver
      .Check(driver.cuMemHostRegister(memory, static_cast<size_t>(bytes),
                                      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
             "cuMemHostRegister")
      .With(Format("pinning %lld bytes of host memory", static_cast<long long>(bytes)));
}

void Unpin(const Driver& driver, void* memory) { driver.cuMemHostUnregister(memory); }

void FreePinned(const Driver& driver, void* memory, int64_t bytes) {
  Unpin(driver, memory);
  munmap(memory, static_cast<size_t>(Mapped(bytes)));
}

}  // namespace oocdnn::cuda
