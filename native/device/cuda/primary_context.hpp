// The primary context of a GPU, which the CUDA runtime of this process shares.
#pragma once

#include "device/cuda/driver.hpp"

namespace oocdnn::cuda {

class PrimaryContext {
 public:
  // kUnsupported where there is no such GPU.
  static Result<PrimaryContext> Retain(int ordinal);
  PrimaryContext(PrimaryContext&& other) noexcept;
  PrimaryContext& operator=(PrimaryContext&&) = delete;
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext();

  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] CUcontext handle() const { return handle_; }
  [[nodiscard]] CUdevice device() const { return device_; }
  [[nodiscard]] int ordinal() const { return ordinal_; }

 private:
  PrimaryContext(const Driver* driver, int ordinal) : driver_(driver), ordinal_(ordinal) {}

  const Driver* driver_;
  int ordinal_;
  CUdevice device_ = 0;
  CUcontext handle_ = nullptr;
};

// Makes the context current in this thread for as long as it lives, and the thread's capture mode
// relaxed, so that our allocations never invalidate somebody's capture. Both are put back. One
// within another for the same GPU does nothing.
class Current {
 public:
  explicit Current(const PrimaryContext& context);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  [[nodiscard]] Status status() const;

 private:
  const Driver& driver_;
  const CUcontext handle_, outer_;
  CUresult pushed_ = CUDA_SUCCESS;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace oocdnn::cuda
