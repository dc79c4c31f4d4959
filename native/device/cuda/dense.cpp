#include "device/cuda/dense.hpp"

#include <algorithm>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"
#include "device/cuda/engine.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 8;  // per multiprocessor: two rounds of what has registers there
constexpr int64_t kLeastLanes = 16, kMostLanes = 64;

// What both kinds of plans are made from: tiles whose windows are of one row and column, or of two.
struct Dense {
  const PoolForwardKernelArgs& make;
  const TileLayout &y, &z;
  const TileLayout* saved;
  bool each;
  int64_t vector, images, channels, rows, columns;  // elements of a piece of y; and of z
};

// Of vectors, by what a thread makes at once: see DenseWork.
int64_t MadeOf(const Dense& dense, bool across) {
  if (dense.make.saved != nullptr) return kPoolForwardGroup;
  return dense.each || across ? dense.vector : dense.vector / 2;
}

bool HasTypes(const PoolForwardKernelArgs& make) {
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
bool AreWhole(const PoolForwardKernelArgs& make, const TileLayout& y, const TileLayout& z,
              int extent) {
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
bool SavesDensely(const PoolForwardKernelArgs& make, const TileLayout& z, const TileLayout& saved) {
  const int64_t columns = z.shape[5];
  return columns % kPoolForwardGroup == 0 &&
         saved.shape[5] == columns / kPoolForwardGroup * make.bits &&
         std::equal(z.shape.begin(), z.shape.begin() + 5, saved.shape.begin()) &&
         make.saved_rows[0] >= z.shape[3] && make.saved_rows[1] >= z.shape[4] &&
         make.bits_begin <= 0 && make.bits_end >= columns && make.bits <= 3 &&
         LiesAs(saved, kDenseOrder);
}

bool IsAligned(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
}

DenseArgs ArgsOf(const Dense& dense, DenseOrder order) {
  const PoolForwardKernelArgs& make = dense.make;
  DenseArgs args{};
  args.y = make.y;
  args.bias = static_cast<const float*>(make.bias);
  args.z = make.z;
  args.saved = make.saved;
  args.y_type = make.type;
  args.z_type = make.z_type;
  args.kind = make.kind;
  args.bits = make.bits;
  args.order = order;
  args.activation = make.activation;
  args.parameter = make.parameter;
  const int64_t nearest = order == kDenseAlong ? 1 : dense.channels;
  args.y_row = static_cast<unsigned>(dense.y.shape[5] * nearest / dense.vector);
  return args;
}

// The channels' pieces that a block works on: 256 bytes where that divides all, or some more.
int64_t LanesOf(int64_t pieces) {
  for (int64_t lanes = std::min<int64_t>(pieces, kLeastLanes); lanes <= kMostLanes; ++lanes) {
    if (pieces % lanes == 0) return lanes;
  }
  return 0;
}

// Where channels lie nearest in y, and bits or z lie in planes.
std::optional<DensePlan> PlanPlanes(const Dense& dense, bool turns, int multiprocessors) {
  const PoolForwardKernelArgs& make = dense.make;
  if (dense.channels % dense.vector != 0 || dense.columns % kPoolForwardGroup != 0)
    return std::nullopt;
  const int64_t pieces = dense.channels / dense.vector, lanes = LanesOf(pieces);
  if (lanes == 0) return std::nullopt;
  if (dense.saved != nullptr && make.bits != (dense.each ? 1 : 3)) return std::nullopt;
  if (dense.saved != nullptr && dense.each && turns) return std::nullopt;
  if (!IsAligned(make.y, kDenseBytes) || !IsAligned(make.z, kDenseBytes)) return std::nullopt;

  DensePlan plan;
  plan.kernel = Kernel::kPlanes;
  DenseArgs& args = plan.args;
  args = ArgsOf(dense, kDenseAcross);
  const int64_t slots = kThreads / lanes / 4 * 4,
                groups = dense.rows * dense.columns / kPoolForwardGroup;
  const int64_t chunks = pieces / lanes, runs = CeilDiv(groups, slots);
  const int64_t count = Mul(Mul(dense.images, runs), chunks);
  args.count = static_cast<unsigned>(count);
  args.width = MakeDivisor(dense.columns / kPoolForwardGroup);
  args.channels = MakeDivisor(pieces);
  DensePlanes& planes = args.planes;
  planes.turns = turns ? 1 : 0;
  const bool whole = IsAligned(make.saved, sizeof(unsigned)) &&
                     groups * make.bits % static_cast<int64_t>(sizeof(unsigned)) == 0;
  planes.whole_words = whole ? 1 : 0;
  planes.groups = static_cast<unsigned>(groups);
  planes.lanes = MakeDivisor(lanes);
  planes.slots = MakeDivisor(slots);
  planes.words = MakeDivisor(slots * (dense.each ? 1 : 3) / static_cast<int64_t>(sizeof(unsigned)));
  planes.chunks = MakeDivisor(chunks);
  planes.runs = MakeDivisor(runs);
  const int64_t kept = lanes * dense.vector;  // rows in a block's memory, see PlanesWork
  const int64_t elements = turns ? slots * kPoolForwardGroup + 2 : 0;
  const int64_t words = dense.saved != nullptr ? slots + 1 : 0;
  const int64_t bytes = kept * (elements * SizeOf(dense.z.dtype) + words * sizeof(unsigned));
  plan.shape = {std::min<int64_t>(count, int64_t{multiprocessors} * kBlocks), kThreads,
                static_cast<int>(bytes)};
  return plan;
}

std::optional<DensePlan> PlanVectors(const Dense& dense, bool across, int multiprocessors) {
  const int64_t channels = dense.channels, rows = dense.rows, columns = dense.columns;
  const int64_t made = MadeOf(dense, across), pieces = channels / dense.vector;
  const bool divides = across ? channels % dense.vector == 0
                              : (dense.each ? Mul(rows, columns) : columns) % made == 0;
  if (!divides) return std::nullopt;
  const int64_t access = std::min<int64_t>(made * SizeOf(dense.z.dtype), kDenseBytes);
  if (!IsAligned(dense.make.y, kDenseBytes) || !IsAligned(dense.make.z, access)) {
    return std::nullopt;
  }
  DensePlan plan;
  DenseArgs& args = plan.args;
  args = ArgsOf(dense, across ? kDenseAcross : kDenseAlong);
  const int64_t count = Mul(Mul(Mul(dense.images, channels), rows), columns) / made;
  const int64_t blocks =
      std::min<int64_t>(CeilDiv(count, kThreads), int64_t{multiprocessors} * kBlocks);
  int64_t threads = blocks * kThreads;
  if (across) threads -= threads % pieces;  // so that a thread keeps to its channels
  if (threads == 0) return std::nullopt;
  args.count = static_cast<unsigned>(count);
  args.step = static_cast<unsigned>(threads);
  args.width = MakeDivisor(across ? columns : columns / made);
  args.rows = MakeDivisor(dense.each ? rows * columns / made : rows);
  args.channels = MakeDivisor(across ? pieces : channels);
  plan.shape = {blocks, kThreads, 0};
  return plan;
}

}  // namespace

std::optional<DensePlan> PlanDense(const PoolForwardKernelArgs& make, const TileLayout& y,
                                   const TileLayout& z, const TileLayout* saved,
                                   int multiprocessors) {
  const bool windows = make.kind == kPoolForwardMax2 || make.kind == kPoolForwardAverage2;
  const bool each = make.kind == kPoolForwardEach || make.kind == kPoolForwardMax1;
  if (!(windows || each) || !HasTypes(make)) return std::nullopt;
  if (!AreWhole(make, y, z, each ? 1 : 2)) return std::nullopt;
  if (saved != nullptr && !SavesDensely(make, z, *saved)) return std::nullopt;
  const Dense dense{make,
                    y,
                    z,
                    saved,
                    each,
                    kDenseBytes / SizeOf(y.dtype),
                    z.shape[0],
                    Mul(y.shape[1], y.shape[2]),
                    Mul(z.shape[3], z.shape[4]),
                    z.shape[5]};
  const bool in_planes = LiesAs(z, kDenseOrder);
  if (LiesAs(y, kDenseOrder)) {
    return in_planes ? PlanVectors(dense, false, multiprocessors) : std::nullopt;
  }
  const bool alike = LiesAs(z, kChannelsLastOrder);
  if (!LiesAs(y, kChannelsLastOrder) || !(alike || in_planes)) return std::nullopt;
  if (!alike || saved != nullptr) return PlanPlanes(dense, !alike, multiprocessors);
  return PlanVectors(dense, true, multiprocessors);
}

}  // namespace oocdnn::cuda
