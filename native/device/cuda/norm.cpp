// Applying is shared out in the order of memory. Of sums a block has all of one channel: its
// threads go along the nearest dimension together.
#include "device/cuda/norm.hpp"

#include <algorithm>
#include <vector>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"
#include "device/cuda/shares.hpp"
#include "geom/moments.h"

namespace oocdnn::cuda {
namespace {

constexpr int kApplyThreads = 256;
constexpr int kBlocks = 8;  // per multiprocessor

struct Dimension {
  int64_t extent, stride, entry;
};

bool Nearer(const Dimension& a, const Dimension& b) { return a.stride < b.stride; }

void Put(const std::vector<Dimension>& dims, NormKernelArgs* kernel) {
  kernel->dims = static_cast<int>(dims.size());
  for (size_t d = 0; d < dims.size(); ++d) {
    kernel->dim[d] = {MakeDivisor(dims[d].extent), dims[d].stride, dims[d].entry};
  }
}

}  // namespace

Result<NormPlan> PlanNorm(const NormArgs& args, int multiprocessors) {
  OOC_TRY(CheckPlain(*args.layout));
  NormPlan plan;
  plan.shape.blocks = 0;
  if (args.empty()) return plan;
  std::vector<Dimension> channels, rows;
  int64_t before = 0, entry = 0, elements = 1, tables = 1;
  for (size_t d = 0; d < args.begin.size(); ++d) {
    const int64_t extent = args.end[d] - args.begin[d], stride = args.layout->stride[d];
    const int64_t step = d < 3 ? args.step[d] : 0;
    before += args.begin[d] * stride;
    entry += args.begin[d] * step;
    elements *= extent;
    tables *= d < 3 ? extent : 1;
    if (extent > 1) (d < 3 ? channels : rows).push_back({extent, stride, step});
  }
  const bool sums = args.pass == NormPass::kSum;
  std::vector<Dimension> dims = rows;
  if (!sums) dims.insert(dims.end(), channels.begin(), channels.end());
  std::sort(dims.begin(), dims.end(), Nearer);
  const auto sum_dims = static_cast<int>(dims.size());
  if (sums) dims.insert(dims.end(), channels.begin(), channels.end());
  NormKernelArgs& kernel = plan.args;
  Put(dims, &kernel);
  kernel.row_dims = sum_dims;
  kernel.tile = static_cast<char*>(args.tile) + before * SizeOf(args.layout->dtype);
  if (args.table != nullptr) {
    kernel.table =
        static_cast<char*>(args.table) + args.Numbers() * entry * SizeOf(args.TableType());
  }
  kernel.type = static_cast<int>(args.layout->dtype);
  kernel.rounded = static_cast<int>(args.rounded);
  kernel.activation = static_cast<int>(args.activation);
  kernel.parameter = args.parameter;
  kernel.count = static_cast<unsigned>(sums ? elements / tables : elements);
  if (sums) {
    plan.shape = {tables, kSumThreads, kSumThreads * static_cast<int>(sizeof(Moments))};
  } else {
    const int64_t most = int64_t{multiprocessors} * kBlocks;
    plan.shape = {std::min(CeilDiv(elements, kApplyThreads), most), kApplyThreads, 0};
  }
  return plan;
}

}  // namespace oocdnn::cuda
