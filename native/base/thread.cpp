#include "base/thread.hpp"

#include <pthread.h>
#include <csignal>

#include <array>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/guarded.hpp"

namespace oocdnn {

Result<std::thread> StartThread(const char* name, std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  Status status;
  try {
    thread = std::thread(std::move(body));
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
