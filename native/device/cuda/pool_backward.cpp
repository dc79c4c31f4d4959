// Rows are counted from those of the tile of dy, and what is far behind it does not matter: so ints
// hold them, whatever the tensor's size.
#include "device/cuda/pool_backward.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"
#include "device/cuda/shares.hpp"

namespace oocdnn::cuda {
namespace {

int Int(int64_t value) { return static_cast<int>(value); }

void SetAxis(const PoolBackwardArgs& from, int s, PoolBackwardKernelArgs* to) {
  const Pool& pool = from.pool;
  const int64_t origin = from.box.origin[3 + s], rows = from.layout->shape[3 + s];
  const int64_t beyond = rows + 2 * pool.window[s];  // no window that reaches the tile ends there
  const int64_t left = from.extent[s] - origin;
  to->window[s] = Int(pool.window[s]);
  to->step[s] = MakeDivisor(pool.stride[s]);
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

// Whether the window is so wide along H and W, in such steps, and along D there is none.
bool IsWindow(const Pool& pool, int64_t extent, int64_t step) {
  return pool.window == Spatial{1, extent, extent} && pool.stride == Spatial{1, step, step};
}

PoolBackwardKind KindOf(const PoolBackwardArgs& args) {
  const bool known = args.layout->dtype == args.z.layout->dtype &&
                     args.layout->dtype != DType::kFloat64 && !args.saving.slopes();
  if (!known) return kPoolBackwardAny;
  const Saved saved = args.saving.what;
  switch (args.pool.mode) {
    case PoolMode::kNone: return saved == Saved::kAlive ? kPoolBackwardEach : kPoolBackwardAny;
    case PoolMode::kMax:
      if (saved != Saved::kWinners) return kPoolBackwardAny;
      if (IsWindow(args.pool, 2, 2)) return kPoolBackwardMax2;
      return IsWindow(args.pool, 3, 2) ? kPoolBackwardMax3 : kPoolBackwardAny;
    default: return IsWindow(args.pool, 2, 2) ? kPoolBackwardAverage2 : kPoolBackwardAny;
  }
}

// How patches of a known kind lie on the tile of dy: their extents, in patches.
Dims PatchOut(const PoolBackwardArgs& from, bool across, PoolBackwardKernelArgs* to) {
  const int step = to->kind == kPoolBackwardEach ? 1 : 2, axis = across ? 2 : 5;
  Dims extents = from.layout->shape;
  bool vector = IsVectors(*from.layout, from.dy, axis, kPoolBackwardVector);
  if (across || to->kind == kPoolBackwardEach) {
    vector = vector && IsVectors(*from.z.layout, from.z.data, axis, kPoolBackwardVector);
  }
  if (!across && to->kind == kPoolBackwardEach) {
    const auto whole = [](int column) { return column % kPoolBackwardVector == 0; };
    vector = vector && whole(to->lead[2]) && whole(to->z_begin[2]) && whole(to->z_end[2]);
  }
  const bool within = step == 2 && to->kind != kPoolBackwardMax3 && to->lead[2] % 2 != 0;
  to->vector = vector && (across || !within) ? 1 : 0;
  to->start[0] = step == 2 ? to->lead[1] & 1 : 0;
  to->start[1] = across ? (step == 2 ? to->lead[2] & 1 : 0) : within ? 1 : 0;
  extents[4] = CeilDiv(extents[4] + to->start[0], step);
  extents[5] = CeilDiv(extents[5] + to->start[1], across ? step : kPoolBackwardVector);
  if (across) extents[2] = CeilDiv(extents[2], kPoolBackwardVector);
  return extents;
}

}  // namespace

Result<PoolBackwardPlan> PlanPoolBackward(const PoolBackwardArgs& args, int multiprocessors) {
  for (const TileLayout* layout : {args.layout, args.z.layout, args.saved.layout}) {
    if (layout != nullptr) OOC_TRY(CheckPlain(*layout));
  }
  PoolBackwardPlan plan;
  plan.shape.blocks = 0;
  if (Product(args.layout->shape) == 0) return plan;
  PoolBackwardKernelArgs& kernel = plan.args;
  kernel.dy = args.dy;
  kernel.dz = args.z.data;
  kernel.saved = static_cast<const unsigned char*>(args.saved.data);
  kernel.dy_type = static_cast<int>(args.layout->dtype);
  kernel.dz_type = static_cast<int>(args.z.layout->dtype);
  kernel.mode = static_cast<int>(args.pool.mode);
  kernel.saving = static_cast<int>(args.saving.what);
  kernel.bits = args.saving.bits;
  kernel.slope_type = static_cast<int>(args.saving.slope);
  kernel.kind = KindOf(args);
  for (int s = 0; s < 3; ++s) SetAxis(args, s, &kernel);
  SetStrides(*args.layout, &kernel.y_stride);
  SetStrides(*args.z.layout, &kernel.z_stride);
  if (args.saved.data != nullptr) {
    SetStrides(*args.saved.layout, &kernel.saved_stride);
    kernel.row_bytes = Int(args.saved.layout->shape[5]);
  }
  kernel.channels = Int(args.layout->shape[2]);
  for (int s = 0; s < 2; ++s) kernel.rows[s] = Int(args.layout->shape[4 + s]);
  const bool across = args.layout->shape[2] > 1 && args.layout->stride[2] < args.layout->stride[5];
  const ShareUnits units{across, across ? kPoolBackwardGroup : 1, 1};
  const Dims extents =
      kernel.kind == kPoolBackwardAny ? args.layout->shape : PatchOut(args, across, &kernel);
  const Sharing sharing = ShareOut(extents, units, multiprocessors);
  kernel.shares = sharing.shares;
  plan.shape = sharing.shape;
  return plan;
}

}  // namespace oocdnn::cuda
