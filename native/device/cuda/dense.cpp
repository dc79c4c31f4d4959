#include "device/cuda/dense.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"
#include "device/cuda/engine.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 8;  // per multiprocessor: two rounds of what has registers there

// Of vectors, by what a thread makes at once: see DenseWork.
int64_t MadeOf(const MakeKernelArgs& make, bool across, bool each, int64_t vector) {
  if (make.saved != nullptr) return kMakeGroup;
  return each || across ? vector : vector / 2;
}

bool HasTypes(const MakeKernelArgs& make) {
  return make.type == kF32 ? make.z_type != kF64 : make.type != kF64 && make.z_type == make.type;
}

bool LiesAs(const TileLayout& layout, const DimOrder& order) {
  const TileLayout plain = PlainLayout(layout.dtype, layout.shape, order);
  for (int d = 0; d < kCopyDims; ++d) {
    if (layout.shape[d] > 1 && layout.stride[d] != plain.stride[d]) return false;
  }
  return true;
}

// Whether all windows are of `extent` rows and columns, one behind the other, and exist.
bool AreWhole(const MakeKernelArgs& make, const TileLayout& y, const TileLayout& z, int extent) {
  bool whole = std::equal(z.shape.begin(), z.shape.begin() + 3, y.shape.begin());
  for (int s = 0; s < 3; ++s) {
    const int mine = s == 0 ? 1 : extent;
    whole = whole && make.window[s] == mine && make.step[s] == mine && make.first[s] == 0 &&
            make.begin[s] == 0 && make.end[s] == y.shape[3 + s] && make.rows[s] >= z.shape[3 + s] &&
            y.shape[3 + s] == mine * z.shape[3 + s];
  }
  return whole;
}

// Whether the bits lie as densely as the elements that they are of, whose rows are whole groups.
bool SavesDensely(const MakeKernelArgs& make, const TileLayout& z, const TileLayout& saved) {
  const int64_t columns = z.shape[5];
  return columns % kMakeGroup == 0 && saved.shape[5] == columns / kMakeGroup * make.bits &&
         std::equal(z.shape.begin(), z.shape.begin() + 5, saved.shape.begin()) &&
         make.saved_rows[0] >= z.shape[3] && make.saved_rows[1] >= z.shape[4] &&
         make.bits_begin <= 0 && make.bits_end >= columns && make.bits <= 3 &&
         LiesAs(saved, kDenseOrder);
}

bool IsAligned(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
}

}  // namespace

std::optional<DensePlan> PlanDense(const MakeKernelArgs& make, const TileLayout& y,
                                   const TileLayout& z, const TileLayout* saved,
                                   int multiprocessors) {
  const bool windows = make.kind == kMakeMax2 || make.kind == kMakeAverage2;
  const bool each = make.kind == kMakeEach || make.kind == kMakeMax1;
  if (!(windows || each) || !HasTypes(make)) return std::nullopt;
  if (!AreWhole(make, y, z, each ? 1 : 2)) return std::nullopt;
  const bool along = LiesAs(y, kDenseOrder) && LiesAs(z, kDenseOrder);
  const bool across = !along && LiesAs(y, kChannelsLastOrder) && LiesAs(z, kChannelsLastOrder);
  const int64_t vector = kDenseBytes / SizeOf(y.dtype), made = MadeOf(make, across, each, vector);
  const int64_t channels = Mul(y.shape[1], y.shape[2]);
  const int64_t rows = Mul(z.shape[3], z.shape[4]), columns = z.shape[5];
  const bool divides =
      along ? (each ? Mul(rows, columns) : columns) % made == 0 : across && channels % vector == 0;
  if (!divides) return std::nullopt;
  if (saved != nullptr && !(along && SavesDensely(make, z, *saved))) return std::nullopt;
  const int64_t access = std::min<int64_t>(made * SizeOf(z.dtype), kDenseBytes);
  if (!IsAligned(make.y, kDenseBytes) || !IsAligned(make.z, access)) return std::nullopt;

  DensePlan plan;
  DenseArgs& args = plan.args;
  args.y = make.y;
  args.bias = static_cast<const float*>(make.bias);
  args.z = make.z;
  args.saved = make.saved;
  args.y_type = make.type;
  args.z_type = make.z_type;
  args.kind = make.kind;
  args.bits = make.bits;
  args.across = across ? 1 : 0;
  args.activation = make.activation;
  args.parameter = make.parameter;
  const int64_t elements = Mul(Mul(Mul(z.shape[0], channels), rows), columns);
  const int64_t count = elements / made, pieces = channels / vector;
  const int64_t blocks =
      std::min<int64_t>(CeilDiv(count, kThreads), int64_t{multiprocessors} * kBlocks);
  int64_t threads = blocks * kThreads;
  if (across) threads -= threads % pieces;  // so that a thread keeps to its channels
  if (threads == 0) return std::nullopt;
  args.count = static_cast<unsigned>(count);
  args.step = static_cast<unsigned>(threads);
  args.y_row = static_cast<unsigned>(y.shape[5] * (across ? channels : 1) / vector);
  args.width = MakeDivisor(across ? columns : columns / made);
  args.rows = MakeDivisor(each ? rows * columns / made : rows);
  args.channels = MakeDivisor(across ? pieces : channels);
  plan.shape = {blocks, kThreads, 0};
  return plan;
}

}  // namespace oocdnn::cuda
