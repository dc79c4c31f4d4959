// Rows are counted from those of the tile of dy, and what is far behind it does not matter: so ints
// hold them, whatever the tensor's size.
#include "device/cuda/restore.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"
#include "device/cuda/make.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 8;  // per multiprocessor

int Int(int64_t value) { return static_cast<int>(value); }

void SetAxis(const RestoreArgs& from, int s, RestoreKernelArgs* to) {
  const Pool& pool = from.pool;
  const int64_t origin = from.box.origin[3 + s], rows = from.layout->shape[3 + s];
  const int64_t beyond = rows + 2 * pool.window[s];  // no window that reaches the tile ends there
  const int64_t left = from.extent[s] - origin;
  to->window[s] = Int(pool.window[s]);
  to->step[s] = Int(pool.stride[s]);
  to->lead[s] = Int(from.z_origin[s] * pool.stride[s] - pool.pad_before[s] - origin);
  to->begin[s] = Int(std::clamp<int64_t>(from.box.valid_begin[3 + s] - origin, 0, rows));
  to->end[s] = Int(std::clamp<int64_t>(from.box.valid_end[3 + s] - origin, 0, rows));
  to->y_begin[s] = Int(std::max<int64_t>(-origin, -beyond));
  to->y_end[s] = Int(std::min(left, beyond));
  to->padded_end[s] = Int(std::min(left + pool.pad_after[s], beyond));
  const int64_t z_rows = from.z.layout->shape[3 + s];
  const int64_t z_left = pool.OutExtent(s, from.extent[s]) - from.z_origin[s];
  to->z_begin[s] = Int(std::clamp<int64_t>(-from.z_origin[s], 0, z_rows));
  to->z_end[s] = Int(std::min(z_left, z_rows));
  const bool winners = from.saving.what == Saved::kWinners;
  to->to_bits[s] = Int((winners ? from.z_origin[s] : origin) - from.saved_origin[s]);
}

// The dimensions of dy's tile as they lie in memory, the nearest first.
void SetOrder(const TileLayout& layout, RestoreKernelArgs* to) {
  std::array<int, kCopyDims> order{};
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return layout.stride[a] < layout.stride[b]; });
  for (int i = 0; i < kCopyDims; ++i) {
    const int d = order[static_cast<size_t>(i)];
    to->order[i] = d;
    to->extent[i] = MakeDivisor(layout.shape[d]);
    to->y_stride[i] = layout.shape[d] > 1 ? Int(layout.stride[d]) : 0;
  }
}

}  // namespace

Result<RestorePlan> PlanRestore(const RestoreArgs& args, int multiprocessors) {
  for (const TileLayout* layout : {args.layout, args.z.layout, args.saved.layout}) {
    if (layout != nullptr) OOC_TRY(CheckPlain(*layout));
  }
  RestorePlan plan;
  plan.shape.blocks = 0;
  int64_t elements = 1;
  for (const int64_t extent : args.layout->shape) elements *= extent;
  if (elements == 0) return plan;
  RestoreKernelArgs& kernel = plan.args;
  kernel.dy = args.dy;
  kernel.dz = args.z.data;
  kernel.saved = static_cast<const unsigned char*>(args.saved.data);
  kernel.dy_type = static_cast<int>(args.layout->dtype);
  kernel.dz_type = static_cast<int>(args.z.layout->dtype);
  kernel.mode = static_cast<int>(args.pool.mode);
  kernel.saving = static_cast<int>(args.saving.what);
  kernel.bits = args.saving.bits;
  kernel.count = static_cast<unsigned>(elements);
  for (int s = 0; s < 3; ++s) SetAxis(args, s, &kernel);
  SetOrder(*args.layout, &kernel);
  SetStrides(*args.z.layout, &kernel.z_stride);
  if (args.saved.data != nullptr) SetStrides(*args.saved.layout, &kernel.saved_stride);
  const int64_t most = int64_t{multiprocessors} * kBlocks;
  plan.shape = {std::min(CeilDiv(elements, kThreads), most), kThreads, 0};
  return plan;
}

}  // namespace oocdnn::cuda
