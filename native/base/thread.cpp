#include "base/thread.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <csignal>

#include <array>
#include <cstddef>
#include <exception>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/guarded.hpp"

namespace oocdnn {

namespace {

constexpr size_t kSpareBytes = size_t{1} << 20;

}  // namespace

void GiveBack::operator()(void* memory) const { munmap(memory, kSpareBytes); }

Result<Spare> TakeSpare() {
  void* const memory = mmap(nullptr, kSpareBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory != MAP_FAILED) return Spare(memory);
  return Error(Code::kDeviceError, "cannot start a thread: no %zu bytes of address space are left",
               kSpareBytes);
}

thread_local Uncancelled* Uncancelled::innermost_ = nullptr;

Result<std::thread> StartThread(const char* name, std::function<void()> body) {
  OOC_ASSIGN(Spare spare, TakeSpare());
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  Status status;
  try {
    thread = std::thread([body = std::move(body), spare = std::move(spare)]() mutable {
      spare.reset();
      static_cast<void>(std::uncaught_exceptions());  // takes the memory that exceptions need
      body();
    });
  } catch (const std::system_error& error) {
    status = Error(Code::kDeviceError, "cannot start thread %s: %s", name, error.what());
  } catch (...) {
    status = StatusOfException();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status.ok()) return status;
  std::array<char, 16> cut{};
  std::string_view(name).copy(cut.data(), cut.size() - 1);
  pthread_setname_np(thread.native_handle(), cut.data());
  return thread;
}

}  // namespace oocdnn
