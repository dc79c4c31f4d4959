#include "device/cuda/link_rate.hpp"

namespace oocdnn::cuda {
namespace {

constexpr double kLatest = 0.5;  // the share of the latest copy in the rate

}  // namespace

LinkRate::~LinkRate() {
  for (CUevent event : {begin_, end_}) {
    if (event != nullptr) driver_.cuEventDestroy(event);
  }
}

Status LinkRate::Prepare() {
  for (CUevent* event : {&begin_, &end_}) {
    OOC_CUDA(driver_, cuEventCreate, event, CU_EVENT_DEFAULT);
  }
  return {};
}

double LinkRate::Read() {
  if (!pending_ || driver_.cuEventQuery(end_) == CUDA_ERROR_NOT_READY) return rate_;
  pending_ = false;
  float milliseconds = 0.0F;
  if (driver_.cuEventElapsedTime(&milliseconds, begin_, end_) != CUDA_SUCCESS) return rate_;
  if (milliseconds <= 0.0F) return rate_;
  const double latest = static_cast<double>(bytes_) / (static_cast<double>(milliseconds) * 1e-3);
  rate_ = known_ ? rate_ + kLatest * (latest - rate_) : latest;
  known_ = true;
  return rate_;
}

}  // namespace oocdnn::cuda
