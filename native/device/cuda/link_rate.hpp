// The rate of a link, from the times of some of the copies over it.
#pragma once

#include <cstdint>

#include "device/cuda/driver.hpp"

namespace oocdnn::cuda {

// Of one stream; calls need its context current. A time stamp holds up what follows it on a busy
// wire, so only few copies have one.
class LinkRate {
 public:
  explicit LinkRate(const Driver& driver) : driver_(driver) {}
  ~LinkRate();
  LinkRate(const LinkRate&) = delete;
  LinkRate& operator=(const LinkRate&) = delete;
  Status Prepare();

  // Calls enqueue(), which puts a copy of so many bytes on the stream.
  template <class Enqueue>
  Status Timed(CUstream stream, int64_t bytes, const Enqueue& enqueue) {
    const bool timed = !pending_ && copies_++ % kTimedEvery == 1;  // the first may be a slow one
    if (!timed) return enqueue();
    OOC_CUDA(driver_, cuEventRecord, begin_, stream);
    OOC_TRY(enqueue());
    OOC_CUDA(driver_, cuEventRecord, end_, stream);
    pending_ = true;
    bytes_ = bytes;
    return {};
  }

  // Bytes a second, of the copies that have ended; a guess before the first.
  double Read();

 private:
  static constexpr int64_t kTimedEvery = 16;

  const Driver& driver_;
  CUevent begin_ = nullptr, end_ = nullptr;
  int64_t copies_ = 0, bytes_ = 0;
  bool pending_ = false, known_ = false;
  double rate_ = 50e9;
};

}  // namespace oocdnn::cuda
