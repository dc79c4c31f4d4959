#include "base/guarded.hpp"

#include <exception>
#include <new>

namespace oocdnn {

Status StatusOfException() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Error(Code::kOutOfMemory, "the host has no memory left for bookkeeping");
  } catch (const std::exception& error) {
    return Error(Code::kInternal, "unexpected: %s", error.what());
  } catch (...) {
    return Error(Code::kInternal, "unexpected failure");
  }
}

}  // namespace oocdnn
