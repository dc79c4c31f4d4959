#include "base/thread.hpp"

#include <pthread.h>
#include <csignal>

#include <system_error>
#include <utility>

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
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!status.ok()) return status;
  pthread_setname_np(thread.native_handle(), std::string(name).substr(0, 15).c_str());
  return thread;
}

}  // namespace oocdnn
