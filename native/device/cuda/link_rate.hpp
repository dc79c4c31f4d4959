// The rate of a link, from the times of some of the copies over it.
#pragma once

#include <cstdint>

#include "device/cuda/driver.hpp"

namespace oocdnn::cuda {

// A LinkRate times copies of one stream. Prepare and Timed need the stream's context current. A
// time stamp holds up what follows it on a busy wire, so only few copies have one.
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
    if (!wanted_ || pending_) return enqueue();
    wanted_ = false;
    OOC_CUDA(driver_, cuEventRecord, begin_, stream);
    OOC_TRY(enqueue());
    OOC_CUDA(driver_, cuEventRecord, end_, stream);
    pending_ = true;
    bytes_ = bytes;
    return {};
  }

  // The next copy is to be timed.
  void Want() { wanted_ = true; }
  // Bytes a second, of the copies that have ended; a guess before the first.
  double Read();

 private:
  const Driver& driver_;
  CUevent begin_ = nullptr, end_ = nullptr;
  int64_t bytes_ = 0;
  bool wanted_ = false, pending_ = false, known_ = false;
  double rate_ = 50e9;
};

}  // namespace oocdnn::cuda
