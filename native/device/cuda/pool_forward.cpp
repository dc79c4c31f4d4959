#include "device/cuda/pool_forward.hpp"

#include <algorithm>

#include "device/cuda/finish.hpp"
#include "device/cuda/shares.hpp"

namespace oocdnn::cuda {
namespace {

int Int(int64_t value) { return static_cast<int>(value); }

PoolForwardKernelArgs NoSlopes() {
  PoolForwardKernelArgs args{};
  args.slope_type = kU8;
  return args;
}

// The finishing of the sums.
void SetEpilogue(const FinishArgs& from, PoolForwardKernelArgs* to) {
  const Epilogue& epilogue = from.epilogue;
  to->residual = epilogue.residual ? from.residual : nullptr;
  to->bias = epilogue.bias ? from.bias : nullptr;
  to->scale = epilogue.scale ? from.scale : nullptr;
  to->activation = static_cast<int>(epilogue.activation);
  to->alpha = from.alpha;
  to->residual_alpha = epilogue.residual_alpha;
  to->parameter = epilogue.parameter;
}

// Every element of y by itself, in place.
void SetInPlace(const FinishArgs& from, PoolForwardKernelArgs* to) {
  to->z = from.out;
  to->z_type = static_cast<int>(from.layout->dtype);
  SetStrides(*from.layout, &to->z_stride);
  for (int s = 0; s < 3; ++s) {
    to->window[s] = to->step[s] = 1;
    to->end[s] = to->padded_end[s] = to->rows[s] = Int(from.layout->shape[3 + s]);
  }
  to->z_width = to->rows[2];
}

// Rows behind the tile are of no use, and tensors may have more of them than an int counts.
void SetPool(const FinishArgs& from, PoolForwardKernelArgs* to) {
  const PoolOutput& made = from.pooled;
  to->z = made.z.data;
  to->z_type = static_cast<int>(made.z.layout->dtype);
  to->mode = static_cast<int>(made.pool.mode);
  SetStrides(*made.z.layout, &to->z_stride);
  for (int s = 0; s < 3; ++s) {
    const int64_t origin = made.y_origin[s], extent = made.extent[s];
    const int64_t left = std::min(extent - origin, from.layout->shape[3 + s]);
    const int64_t padding = std::max<int64_t>(extent + made.pool.pad_after[s] - origin - left, 0);
    const int64_t z_left = made.pool.OutExtent(s, extent) - made.z_origin[s];
    to->window[s] = Int(made.pool.window[s]);
    to->step[s] = Int(made.pool.stride[s]);
    to->first[s] = Int(made.z_origin[s] * made.pool.stride[s] - made.pool.pad_before[s] - origin);
    to->begin[s] = Int(std::max<int64_t>(-origin, 0));
    to->end[s] = Int(left);
    to->padded_end[s] = Int(left + std::min(padding, made.pool.window[s]));
    to->rows[s] = Int(std::min(z_left, made.z.layout->shape[3 + s]));
  }
  to->z_width = Int(made.z.layout->shape[5]);
}

// The bits of elements of what the launch makes.
void SetBits(const PoolOutput& made, PoolForwardKernelArgs* to) {
  const TileLayout& layout = *made.saved.layout;
  to->saved = static_cast<unsigned char*>(made.saved.data);
  to->bits = made.saving.bits;
  to->slope_type = static_cast<int>(made.saving.slope);
  SetStrides(layout, &to->saved_stride);
  to->saved_rows[0] = Int(layout.shape[3]);
  to->saved_rows[1] = Int(layout.shape[4]);
  to->row_bytes = Int(layout.shape[5]);
  to->bits_end = to->z_width;
  if (made.saving.what != Saved::kAlive) return;
  const int64_t reached = made.pool.RowsReached(2, made.extent[2]) - made.y_origin[2];
  to->bits_begin = Int(std::max<int64_t>(-made.y_origin[2], 0));
  to->bits_end = Int(std::min<int64_t>(reached, to->z_width));
}

// Whether that is the window, and the tile at `y` has room for it.
bool IsWindow(const PoolForwardKernelArgs& args, const TileLayout& y, int extent) {
  return args.window[0] == 1 && args.window[1] == extent && args.window[2] == extent &&
         y.shape[4] >= extent && y.shape[5] >= extent;
}

// Whether each element of z, whose tile has the extents `made`, is one of y, which exists; along W
// the rows are the same, so that vectors of y are vectors of z.
bool TakesEach(const PoolForwardKernelArgs& args, const TileLayout& y, const Dims& made) {
  bool each = args.saved == nullptr && args.first[2] == 0 && made[5] == y.shape[5];
  for (int s = 0; s < 3; ++s) {
    const int64_t rows = made[3 + s];
    each = each && args.window[s] == 1 && args.step[s] == 1 && args.first[s] >= args.begin[s] &&
           args.first[s] + rows <= args.end[s] && rows <= args.rows[s];
  }
  return each;
}

PoolForwardKind KindOf(const PoolForwardKernelArgs& args, const TileLayout& y, const Dims& made) {
  if (args.type == kF64 || !OnlyCuts(args) || args.slope_type != kU8) return kPoolForwardAny;
  const bool largest = args.mode == static_cast<int>(PoolMode::kMax);
  if (args.mode == static_cast<int>(PoolMode::kNone)) return kPoolForwardEach;
  if (largest && TakesEach(args, y, made)) return kPoolForwardMax1;
  if (IsWindow(args, y, 2)) return largest ? kPoolForwardMax2 : kPoolForwardAverage2;
  return largest && IsWindow(args, y, 3) ? kPoolForwardMax3 : kPoolForwardAny;
}

// How many neighbours a thread makes of a known kind: of channels where these lie `across`; 1 where
// y has no such vectors.
int MadeAtOnce(const PoolForwardKernelArgs& args, const TileLayout& y, bool across) {
  if (!IsVectors(y, args.y, across ? 2 : 5, kPoolForwardVector)) return 1;
  const bool each = args.kind == kPoolForwardEach || args.kind == kPoolForwardMax1;
  if (across || each) return kPoolForwardVector;
  const int before = args.kind == kPoolForwardMax3 ? 1 : 0;  // columns, see PoolForwardKnown
  const bool vectors = args.step[2] == 2 && (args.first[2] + before) % kPoolForwardVector == 0;
  return vectors && args.z_width % 2 == 0 ? 2 : 1;
}

// What of its kind of work a thread makes at once. Only float sums are of a known kind, and only
// single neighbours are left to any kind where channels lie nearest.
void SetPooled(const TileLayout& y, const TileLayout& z, bool across, PoolForwardKernelArgs* to) {
  if (to->type != kF32) to->kind = kPoolForwardAny;
  to->made = to->kind == kPoolForwardAny ? 1 : MadeAtOnce(*to, y, across);
  if (across && to->made == 1) to->kind = kPoolForwardAny;
  to->z_vector = IsVectors(z, to->z, across ? 2 : 5, to->made) ? 1 : 0;
}

bool HasChannelsNearest(const TileLayout& layout) {
  return layout.shape[2] > 1 && layout.stride[2] < layout.stride[5];
}

// How what is made, of that layout, is shared out.
PoolForwardPlan Shared(const FinishArgs& from, PoolForwardKernelArgs args, const TileLayout& made,
                       int multiprocessors) {
  const TileLayout& y = *from.layout;
  args.y = from.out;
  args.type = static_cast<int>(y.dtype);
  SetStrides(y, &args.y_stride);
  args.kind = KindOf(args, y, made.shape);
  PoolForwardPlan plan;
  const TileLayout* const saved = args.saved != nullptr ? from.pooled.saved.layout : nullptr;
  plan.dense = PlanDense(args, y, made, saved, multiprocessors);
  const bool across = HasChannelsNearest(y);
  SetPooled(y, made, across, &args);
  args.group_channels = Int(made.shape[2]);
  Dims extents = made.shape;
  if (across) extents[2] /= args.made;
  const ShareUnits units{across, kPoolForwardGroup, across ? 1 : kPoolForwardGroup / args.made};
  const Sharing sharing = ShareOut(extents, units, multiprocessors);
  args.shares = sharing.shares;
  plan.args = args;
  plan.shape = sharing.shape;
  plan.shape.shared_bytes = sizeof(MakeRoom);
  return plan;
}

// Whether z is y as a whole in another memory order. A transposition is faster than
// ooc_pool_forward then, whose threads write or read each element by itself.
bool IsTransposed(const PoolForwardKernelArgs& args, const TileLayout& y, const TileLayout& z) {
  const auto mode = static_cast<PoolMode>(args.mode);
  bool same = (mode == PoolMode::kNone || mode == PoolMode::kMax) && args.saved == nullptr &&
              z.shape == y.shape && HasChannelsNearest(y) != HasChannelsNearest(z);
  for (int s = 0; s < 3; ++s) {
    const int64_t rows = y.shape[3 + s];
    same = same && args.window[s] == 1 && args.step[s] == 1 && args.first[s] == 0 &&
           args.begin[s] == 0 && args.end[s] == rows && args.rows[s] == rows;
  }
  return same;
}

StridedCopy CopyOf(const void* y, const TileLayout& from, void* z, const TileLayout& to) {
  StridedCopy copy{
      reinterpret_cast<uintptr_t>(y), reinterpret_cast<uintptr_t>(z), from.dtype, to.dtype, {}};
  for (size_t d = 0; d < from.shape.size(); ++d) {
    copy.dim.push_back(
        {from.shape[d], from.stride[d] * SizeOf(from.dtype), to.stride[d] * SizeOf(to.dtype)});
  }
  return copy;
}

PoolForwardKernelArgs FinishingInPlace(const FinishArgs& args) {
  PoolForwardKernelArgs in_place = NoSlopes();
  SetEpilogue(args, &in_place);
  SetInPlace(args, &in_place);
  return in_place;
}

}  // namespace

Result<std::vector<PoolForwardPlan>> PlanPoolForward(const FinishArgs& args, int multiprocessors) {
  const PoolOutput& made = args.pooled;
  OOC_TRY(CheckPlain(*args.layout));
  for (const PooledTile* tile : {&made.z, &made.saved}) {
    if (tile->data != nullptr) OOC_TRY(CheckPlain(*tile->layout));
  }
  std::vector<PoolForwardPlan> plans;
  for (const int64_t extent : args.layout->shape) {
    if (extent == 0) return plans;
  }
  const bool alive = made.saved.data != nullptr && made.saving.what == Saved::kAlive;
  if (alive) {
    PoolForwardKernelArgs first = FinishingInPlace(args);
    SetBits(made, &first);
    plans.push_back(Shared(args, first, *args.layout, multiprocessors));
  }
  if (made.z.data == nullptr) return plans;
  PoolForwardKernelArgs pool = NoSlopes();
  SetEpilogue(alive ? FinishArgs{} : args, &pool);
  SetPool(args, &pool);
  if (made.saved.data != nullptr && !alive) SetBits(made, &pool);
  plans.push_back(Shared(args, pool, *made.z.layout, multiprocessors));
  if (plans.back().dense || !IsTransposed(pool, *args.layout, *made.z.layout)) return plans;
  plans.pop_back();
  if (!alive && (!args.epilogue.empty() || args.alpha != 1.0)) {
    PoolForwardKernelArgs first = FinishingInPlace(args);
    first.mode = static_cast<int>(PoolMode::kMax);  // zeros keep their signs, unlike in a sum
    plans.push_back(Shared(args, first, *args.layout, multiprocessors));
  }
  plans.emplace_back().copy = CopyOf(args.out, *args.layout, made.z.data, *made.z.layout);
  return plans;
}

std::optional<DensePlan> PlanDenseFinish(const FinishArgs& args, int multiprocessors) {
  const bool plain = !args.layout->opaque && args.layout->channel_block == 1;
  if (!plain || (args.old != nullptr && args.beta != 0.0)) return std::nullopt;
  PoolForwardKernelArgs in_place = FinishingInPlace(args);
  in_place.y = args.out;
  in_place.type = in_place.z_type;
  if (!OnlyCuts(in_place)) return std::nullopt;
  in_place.kind = kPoolForwardEach;
  return PlanDense(in_place, *args.layout, *args.layout, nullptr, multiprocessors);
}

}  // namespace oocdnn::cuda
