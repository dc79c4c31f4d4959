#include "base/checked.hpp"
#include "device/cuda/engine.hpp"

namespace oocdnn::cuda {

CudaEngines MakeEngines(const Gpu& gpu, const std::string& only, std::string* why_not) {
  CudaEngines engines;
  if (only.empty() || only == "direct") engines.push_back(MakeDirectEngine(gpu));
  if (engines.empty()) *why_not = "known is direct";
  return engines;
}

TileLayout PlainLayout(DType dtype, const Dims& shape, const DimOrder& order) {
  TileLayout layout;
  layout.dtype = dtype;
  layout.shape = shape;
  int64_t elements = 1;
  for (int i = 5; i >= 0; --i) {
    layout.stride[order[i]] = elements;
    elements = Mul(elements, shape[order[i]]);
  }
  layout.bytes = Mul(elements, SizeOf(dtype));
  return layout;
}

}  // namespace oocdnn::cuda
