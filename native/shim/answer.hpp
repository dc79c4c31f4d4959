// What functions with cuDNN's names answer: cuDNN's statuses, and the text of the last that was not
// success, one per thread, as cudnnGetLastErrorString gives it.
#pragma once

#include "abi/cudnn_types.h"
#include "base/guarded.hpp"
#include "base/status.hpp"
#include "base/thread.hpp"

namespace oocdnn::shim {

// Keeps the text and returns the status.
[[gnu::format(printf, 2, 3)]] cudnnStatus_t Refuse(cudnnStatus_t status, const char* format, ...);
// cuDNN's status for ours, its text kept.
cudnnStatus_t StatusOf(const Status& status);
// Of the last that was refused in this thread; "" where none was.
const char* LastText();

// Where there is a real library too, whose text is the one that a client wants: Ours is said of
// each call that ran through us, Passed of each that was handed on.
cudnnStatus_t Ours(cudnnStatus_t status);
void Passed();
// Whether the last call that either was said of failed, and was ours.
bool WeFailed();

const char* NameOf(cudnnStatus_t status);

// The body of a function: a cudnnStatus_t, and nothing thrown leaves it. pthread_cancel waits.
template <class Body>
cudnnStatus_t Serve(const Body& body) noexcept {
  const Uncancelled uncancelled;
  try {
    return body();
  } catch (...) {
    return StatusOf(StatusOfException());
  }
}

}  // namespace oocdnn::shim

// Returns BAD_PARAM from the enclosing function when the condition does not hold.
#define OOC_NEED(condition, ...)                                          \
  do {                                                                    \
    if (const bool ooc_holds_ = (condition); !ooc_holds_)                 \
      return ::oocdnn::shim::Refuse(CUDNN_STATUS_BAD_PARAM, __VA_ARGS__); \
  } while (false)

// Returns from the enclosing function what is not success.
#define OOC_CUDNN_TRY(expr)                                                            \
  do {                                                                                 \
    if (const cudnnStatus_t ooc_answer_ = (expr); ooc_answer_ != CUDNN_STATUS_SUCCESS) \
      return ooc_answer_;                                                              \
  } while (false)
