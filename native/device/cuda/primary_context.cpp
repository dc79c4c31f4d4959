#include "device/cuda/primary_context.hpp"

#include <utility>

namespace oocdnn::cuda {

Result<PrimaryContext> PrimaryContext::Retain(int ordinal) {
  OOC_ASSIGN(const Driver* const driver, LoadDriver());
  int count = 0;
  OOC_CUDA(*driver, cuDeviceGetCount, &count);
  if (ordinal < 0 || ordinal >= count) {
    return Error(Code::kUnsupported,
                 "there is no GPU number %d; this process sees %d (CUDA_VISIBLE_DEVICES counts)",
                 ordinal, count);
  }
  PrimaryContext made(driver, ordinal);
  OOC_CUDA(*driver, cuDeviceGet, &made.device_, ordinal);
  OOC_CUDA(*driver, cuDevicePrimaryCtxRetain, &made.handle_, made.device_);
  return made;
}

PrimaryContext::PrimaryContext(PrimaryContext&& other) noexcept
    : driver_(other.driver_),
      ordinal_(other.ordinal_),
      device_(other.device_),
      handle_(std::exchange(other.handle_, nullptr)) {}

// Errors are ignored: the process may be ending, and nobody is left to handle them.
PrimaryContext::~PrimaryContext() {
  if (handle_ != nullptr) driver_->cuDevicePrimaryCtxRelease(device_);
}

namespace {

// The context of the innermost Current of this thread; null where there is none.
thread_local CUcontext current = nullptr;

}  // namespace

Current::Current(const PrimaryContext& context)
    : driver_(context.driver()), handle_(context.handle()), outer_(current) {
  if (outer_ == handle_) return;
  pushed_ = driver_.cuCtxPushCurrent(handle_);
  if (pushed_ != CUDA_SUCCESS) return;
  driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  current = handle_;
}

Current::~Current() {
  if (outer_ == handle_ || pushed_ != CUDA_SUCCESS) return;
  driver_.cuThreadExchangeStreamCaptureMode(&mode_);
  CUcontext popped = nullptr;
  driver_.cuCtxPopCurrent(&popped);
  current = outer_;
}

Status Current::status() const { return driver_.Check(pushed_, "cuCtxPushCurrent"); }

}  // namespace oocdnn::cuda
