// Large blocks are mapped and small ones come from the heap, where the sanitizers see overruns.
#include "device/cpu/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

#include "base/checked.hpp"

namespace oocdnn::cpu {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kMost = int64_t{1} << 60;  // no system maps more, and sums do not overflow

int64_t Booked(int64_t bytes) { return RoundUp(std::max<int64_t>(bytes, 1), kAlignment); }

bool IsMapped(int64_t bytes) { return bytes >= kHugePage; }

// A mapping whose begin is a multiple of the huge page, so that the kernel can use whole ones.
void* MapAligned(int64_t bytes) {
  const auto length = static_cast<size_t>(bytes + kHugePage);
  void* raw = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* const base = static_cast<char*>(raw);
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(raw) % kHugePage);
  const int64_t head = past == 0 ? 0 : kHugePage - past;
  if (head > 0) munmap(base, static_cast<size_t>(head));
  munmap(base + head + bytes, static_cast<size_t>(kHugePage - head));
  madvise(base + head, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return base + head;
}

}  // namespace

void* TakePages(int64_t bytes) {
  if (bytes > kMost) return nullptr;
  const int64_t whole = RoundUp(bytes, kPage);
  if (IsMapped(whole)) return MapAligned(whole);
  return std::aligned_alloc(kPage, static_cast<size_t>(whole));
}

void ReturnPages(void* memory, int64_t bytes) {
  const int64_t whole = RoundUp(bytes, kPage);
  if (IsMapped(whole)) {
    munmap(memory, static_cast<size_t>(whole));
  } else {
    std::free(memory);
  }
}

bool Account::Book(int64_t bytes) {
  int64_t held = held_.load(std::memory_order_relaxed);
  do {
    if (bytes > allowed_ - held) return false;
  } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
  return true;
}

Result<void*> Account::Allocate(int64_t bytes) {
  if (bytes < 0 || bytes > kSizeMax - 2 * kHugePage) {
    return Error(Code::kInternal, "cannot allocate %lld bytes", static_cast<long long>(bytes));
  }
  const int64_t booked = Booked(bytes);
  if (!Book(booked)) {
    return Error(Code::kOutOfMemory,
                 "the CPU device holds %lld of %lld bytes; %lld more do not fit",
                 static_cast<long long>(held()), static_cast<long long>(allowed_),
                 static_cast<long long>(booked));
  }
  void* block = IsMapped(booked) ? TakePages(booked)
                                 : std::aligned_alloc(kAlignment, static_cast<size_t>(booked));
  if (block != nullptr) return block;
  held_.fetch_sub(booked, std::memory_order_relaxed);
  return Error(Code::kOutOfMemory, "the system has no %lld bytes (%lld held, %lld allowed)",
               static_cast<long long>(booked), static_cast<long long>(held()),
               static_cast<long long>(allowed_));
}

void Account::Free(void* block, int64_t bytes) {
  if (block == nullptr) return;
  const int64_t booked = Booked(bytes);
  if (IsMapped(booked)) {
    ReturnPages(block, booked);
  } else {
    std::free(block);
  }
  held_.fetch_sub(booked, std::memory_order_relaxed);
}

}  // namespace oocdnn::cpu
