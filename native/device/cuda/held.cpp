#include "device/cuda/held.hpp"

#include <array>
#include <atomic>

#include "abi/spill.h"

namespace oocdnn::cuda {
namespace {

// Of a GPU beyond them nothing is known, and no limit is kept either.
constexpr int kOrdinals = 64;
std::array<std::atomic<int64_t>, kOrdinals> held;

}  // namespace

void CountHeld(int ordinal, int64_t bytes) {
  if (ordinal >= 0 && ordinal < kOrdinals) held[ordinal] += bytes;
}

}  // namespace oocdnn::cuda

__attribute__((visibility("default"))) int64_t oocdnn_device_bytes(int device) {
  using oocdnn::cuda::held;
  return device >= 0 && device < oocdnn::cuda::kOrdinals ? held[device].load() : 0;
}
