#include "testing/clients/allocations.hpp"

#include <cstdlib>
#include <new>

namespace oocdnn::clients {

std::atomic<int64_t> until_failure{0};

}  // namespace oocdnn::clients

namespace {

void* Take(size_t bytes) {
  std::atomic<int64_t>& until_failure = oocdnn::clients::until_failure;
  if (until_failure > 0 && until_failure.fetch_sub(1) == 1) return nullptr;
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* TakeOrThrow(size_t bytes) {
  void* const memory = Take(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return TakeOrThrow(bytes); }
void* operator new[](size_t bytes) { return TakeOrThrow(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return Take(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return Take(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

// The sanitizer's malloc returns NULL too.
extern "C" const char* __asan_default_options();                                          // NOLINT
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {  // NOLINT
  return "allocator_may_return_null=1";
}
// Reports of undefined behaviour have a stack, and end in the handlers of the program.
extern "C" const char* __ubsan_default_options();                                          // NOLINT
extern "C" __attribute__((visibility("default"))) const char* __ubsan_default_options() {  // NOLINT
  return "print_stacktrace=1:abort_on_error=1";
}
