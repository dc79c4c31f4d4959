#include "device/cuda/finish.hpp"

#include <algorithm>
#include <vector>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 8;  // per multiprocessor

struct Dimension {
  int64_t extent = 1, stride = 0, channel = 0;
};

// The tile's dimensions, the nearest first; those that continue one another are joined. Where no
// operand goes by channel, channels do not keep dimensions apart.
std::vector<Dimension> DimensionsOf(const TileLayout& layout, bool by_channel) {
  std::vector<Dimension> dims;
  for (int d = 0; d < 6; ++d) {
    if (layout.shape[d] != 1) dims.push_back({layout.shape[d], layout.stride[d], 0});
    if (layout.shape[d] == 1 || !by_channel) continue;
    if (d == 1) dims.back().channel = layout.shape[2];
    if (d == 2) dims.back().channel = 1;
  }
  std::sort(dims.begin(), dims.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  std::vector<Dimension> joined;
  for (const Dimension& dim : dims) {
    if (!joined.empty()) {
      Dimension& inner = joined.back();
      if (dim.stride == inner.stride * inner.extent &&
          dim.channel == inner.channel * inner.extent) {
        inner.extent *= dim.extent;
        continue;
      }
    }
    joined.push_back(dim);
  }
  return joined;
}

// Elements of a vector: 16 bytes of them if they are contiguous and everything divides, else 1.
int VectorOf(const FinishArgs& args, const std::vector<Dimension>& dims) {
  const int64_t size = SizeOf(args.layout->dtype), vector = 16 / size;
  if (dims.empty() || dims[0].stride != 1 || dims[0].extent % vector != 0) return 1;
  for (const void* tile : {static_cast<const void*>(args.out), args.old, args.residual}) {
    if (reinterpret_cast<uintptr_t>(tile) % 16 != 0) return 1;
  }
  const bool divides = std::all_of(dims.begin() + 1, dims.end(),
                                   [&](const Dimension& dim) { return dim.stride % vector == 0; });
  return divides ? static_cast<int>(vector) : 1;
}

}  // namespace

Result<FinishPlan> PlanFinish(const FinishArgs& args, int multiprocessors) {
  const TileLayout& layout = *args.layout;
  if (layout.opaque || layout.channel_block != 1) {
    return Error(Code::kUnsupported, "the CUDA device finishes plain tiles only");
  }
  FinishPlan plan;
  plan.shape.blocks = 0;
  const int64_t elements = Product(layout.shape);
  if (elements == 0) return plan;
  if (elements > kMostElements) {
    return Error(Code::kUnsupported, "an output tile has %lld elements; 2^31 - 1 are the most",
                 static_cast<long long>(elements));
  }
  const Epilogue& epilogue = args.epilogue;
  const auto dims = DimensionsOf(layout, epilogue.bias || epilogue.scale);
  FinishKernelArgs& kernel = plan.args;
  kernel.out = args.out;
  kernel.old = args.beta != 0.0 ? args.old : nullptr;
  kernel.residual = epilogue.residual ? args.residual : nullptr;
  kernel.bias = epilogue.bias ? args.bias : nullptr;
  kernel.scale = epilogue.scale ? args.scale : nullptr;
  kernel.type = static_cast<int>(layout.dtype);
  kernel.activation = static_cast<int>(epilogue.activation);
  kernel.vector = VectorOf(args, dims);
  kernel.dims = static_cast<int>(dims.size());
  kernel.count = static_cast<unsigned>(elements / kernel.vector);
  kernel.alpha = args.alpha;
  kernel.beta = args.beta;
  kernel.residual_alpha = epilogue.residual_alpha;
  kernel.parameter = epilogue.parameter;
  kernel.cuts = OnlyCuts(kernel) && kernel.old == nullptr ? 1 : 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    const int64_t vector = d == 0 ? kernel.vector : 1;
    kernel.dim[d] = {MakeDivisor(dims[d].extent / vector), dims[d].stride * vector,
                     dims[d].channel * vector};
  }
  const int64_t most = int64_t{multiprocessors} * kBlocks;
  plan.shape = {std::min(CeilDiv(kernel.count, kThreads), most), kThreads, 0};
  return plan;
}

}  // namespace oocdnn::cuda
