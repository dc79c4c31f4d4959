// Conformance of the outputs of Device::Finish: z of every kind of pool, and bits for backward, for
// tiles that begin before the tensor, inside it, and that pass its end.
#include <cmath>

#include "base/checked.hpp"
#include "testing/conformance_boxes.hpp"
#include "testing/conformance_conv.hpp"

namespace oocdnn::testing {
namespace {

constexpr int kMakings = 60, kSquares = 120, kWide = 180;

struct Making {
  TileLayout y, z, saved;
  Tensor sums;
  Epilogue epilogue;
  PoolOutput pooled;

  [[nodiscard]] std::string Describe() const {
    const Pool& pool = pooled.pool;
    return Format(
        "z of %s %s from a %s tile of y %s, block %lld, mode %d, window %lldx%lldx%lld, activation "
        "%d, saved %d",
        Name(z.dtype), Text(z.shape).c_str(), Name(y.dtype), Text(y.shape).c_str(),
        static_cast<long long>(y.channel_block), static_cast<int>(pool.mode),
        static_cast<long long>(pool.window[0]), static_cast<long long>(pool.window[1]),
        static_cast<long long>(pool.window[2]), static_cast<int>(epilogue.activation),
        static_cast<int>(pooled.saving.what));
  }
};

// Of the smooth ones those with exact results and slopes: elu without a parameter, which is flat
// below 0, and swish without one, which halves.
constexpr Activation kActivationsMade[] = {Activation::kIdentity, Activation::kRelu,
                                           Activation::kClippedRelu, Activation::kElu,
                                           Activation::kSwish};

Epilogue RandomEpilogue(Random& random) {
  Epilogue epilogue;
  epilogue.activation = kActivationsMade[random.Between(0, 4)];
  epilogue.parameter = epilogue.activation == Activation::kClippedRelu ? 2.0 : 0.0;
  return epilogue;
}

double Activated(const Epilogue& epilogue, double v) {
  if (epilogue.activation == Activation::kIdentity || std::isnan(v)) return v;
  if (epilogue.activation == Activation::kElu) return v > 0 ? v : 0.0 * std::expm1(v);
  if (epilogue.activation == Activation::kSwish) return v * 0.5;
  const double low = std::max(v, 0.0);
  return epilogue.activation == Activation::kRelu ? low : std::min(low, epilogue.parameter);
}

bool Flat(const Epilogue& epilogue, double v) {
  const bool cuts =
      epilogue.activation == Activation::kRelu || epilogue.activation == Activation::kClippedRelu;
  if (!cuts || std::isnan(v)) return false;
  return v <= 0 || (epilogue.activation == Activation::kClippedRelu && v >= epilogue.parameter);
}

// Of a smooth activation, at a sum.
double SlopeOf(const Epilogue& epilogue, double u) {
  if (std::isnan(u) || !IsSmooth(epilogue.activation)) return u;
  return epilogue.activation == Activation::kSwish ? 0.5 : u > 0 ? 1.0 : 0.0;
}

// Elements of y's sums by their place in the tensor; only those that exist are asked for.
double SumAt(const Making& making, const Dims& channel, const Spatial& row) {
  Dims at = channel;
  for (int s = 0; s < 3; ++s) at[3 + s] = row[s] - making.pooled.y_origin[s];
  return making.sums.at(at);
}

struct Wanted {
  double value = 0.0;
  uint32_t code = 0;
  double slope = 0.0;
};

// One element of z, from the definition.
Wanted PooledAt(const Making& making, const Dims& index) {
  const PoolOutput& made = making.pooled;
  const Pool& pool = made.pool;
  Spatial first{};
  for (int s = 0; s < 3; ++s) {
    first[s] = (made.z_origin[s] + index[3 + s]) * pool.stride[s] - pool.pad_before[s];
    if (made.z_origin[s] + index[3 + s] >= pool.OutExtent(s, made.extent[s])) return {};
  }
  const bool largest = pool.mode == PoolMode::kMax;
  double result = 0.0, counted = 0.0, sum = 0.0;
  int64_t winner = -1, place = 0;
  ForEach({}, {1, 1, 1, pool.window[0], pool.window[1], pool.window[2]}, [&](const Dims& tap) {
    Spatial row{};
    bool there = true, padded = true;
    for (int s = 0; s < 3; ++s) {
      row[s] = first[s] + tap[3 + s];
      there = there && row[s] >= 0 && row[s] < made.extent[s];
      padded = padded && row[s] < made.extent[s] + pool.pad_after[s];
    }
    const bool counts = pool.mode == PoolMode::kAverageInside ? there : padded;
    counted += counts ? 1.0 : 0.0;
    const int64_t mine = place++;
    if (!there) return;
    const double u = SumAt(making, {index[0], index[1], index[2], 0, 0, 0}, row);
    const double v = Activated(making.epilogue, u);
    if (!largest) {
      result += v;
    } else if (winner < 0 || v > result || (std::isnan(v) && !std::isnan(result))) {
      result = v;
      sum = u;
      winner = mine;
    }
  });
  if (!largest) return {result / counted, 0};
  const int64_t code = Flat(making.epilogue, result) ? pool.Elements() : winner;
  return {result, static_cast<uint32_t>(code), SlopeOf(making.epilogue, sum)};
}

// Code and slope of element `index` of what is saved, its last index counted in elements.
Wanted SavedAt(const Making& making, const Dims& index) {
  const PoolOutput& made = making.pooled;
  if (made.saving.what == Saved::kWinners) {
    return index[5] < making.z.shape[5] ? PooledAt(making, index) : Wanted{};
  }
  if (index[5] >= making.y.shape[5]) return {};
  Spatial row{};
  for (int s = 0; s < 3; ++s) {
    row[s] = made.y_origin[s] + index[3 + s];
    if (row[s] < 0 || row[s] >= made.extent[s]) return {};
  }
  if (row[2] >= made.pool.RowsReached(2, made.extent[2])) return {};
  const double u = SumAt(making, {index[0], index[1], index[2], 0, 0, 0}, row);
  const bool flat = Flat(making.epilogue, Activated(making.epilogue, u));
  return {0.0, flat ? 0u : 1u, SlopeOf(making.epilogue, u)};
}

// Of what is saved: whether its row of z or y exists.
bool RowIsThere(const Making& making, const Dims& index) {
  const PoolOutput& made = making.pooled;
  const bool winners = made.saving.what == Saved::kWinners;
  bool there = true;
  for (int s = 0; s < 2; ++s) {
    const int64_t row = index[3 + s] + (winners ? made.z_origin[s] : made.y_origin[s]);
    const int64_t end = winners ? made.pool.OutExtent(s, made.extent[s]) : made.extent[s];
    there = there && row >= 0 && row < end;
  }
  return there;
}

// Of elements with slopes. A slope that is no number may be any such.
double SlopeByteAt(const Making& making, const Dims& index, double seen) {
  const Saving& saving = making.pooled.saving;
  Dims element = index;
  element[5] = index[5] * 8 / saving.bits;
  const int64_t byte = index[5] - element[5] * saving.bits / 8, slope_bytes = SizeOf(saving.slope);
  const Wanted wanted = SavedAt(making, element);
  if (byte >= slope_bytes) return (wanted.code >> 8 * (byte - slope_bytes)) & 0xffu;
  return std::isnan(wanted.slope) ? seen : ByteOf(saving.slope, wanted.slope, byte);
}

double ByteAt(const Making& making, const Dims& index, double seen) {
  if (making.pooled.saving.slopes()) return SlopeByteAt(making, index, seen);
  const int64_t bits = making.pooled.saving.bits;
  uint32_t byte = 0;
  for (int64_t bit = 0; bit < 8; ++bit) {
    Dims element = index;
    element[5] = (index[5] * 8 + bit) / bits;
    const int64_t shift = (index[5] * 8 + bit) % bits;
    byte |= ((SavedAt(making, element).code >> shift) & 1u) << bit;
  }
  return byte;
}

// What backward needs of it.
Saving SavingOf(const Making& making, DType dtype) {
  Problem problem;
  problem.saves = true;
  problem.dtype = dtype;
  problem.epilogue = making.epilogue;
  problem.pool = making.pooled.pool;
  return problem.saving();
}

// Of the tiles' shapes: the bits' layout, and small integers, zeros of either sign, and NaNs.
void FillSums(Random& random, bool several, Making* making) {
  const Saving& saving = making->pooled.saving;
  Dims saved = saving.what == Saved::kAlive ? making->y.shape : making->z.shape;
  saved[5] = saving.RowBytes(saved[5]);
  making->saved = PlainLayout(DType::kByte, saved);
  making->sums = Integers(making->y.shape, random);
  for (double& value : making->sums.values) {
    if (value == 0.0 && random.Between(0, 1) == 0) value = -0.0;
    if (several && random.Between(0, 99) == 0) value = std::nan("");
  }
  if (random.Between(0, 3) == 0) making->sums.values[0] = std::nan("");
}

// Windows, and tiles that begin and end anywhere; of z, or of y where bits of that are saved. All
// windows, or those of some rows and as many columns, for which there are kernels of their own;
// `wide`: of channels and rows that kernels work on in vectors.
Making MakeMaking(const Device& device, Random& random, int64_t square, bool wide) {
  Making making;
  PoolOutput& made = making.pooled;
  made.pool.mode = static_cast<PoolMode>(random.Between(1, 3));
  made.pool.ceil = random.Between(0, 2) == 0;
  making.epilogue = RandomEpilogue(random);
  Dims y{
      random.Between(1, square > 0 ? 9 : 2), random.Between(1, 2), random.Between(1, 20), 0, 0, 0};
  if (wide) y[2] = RoundUp(y[2], 4);
  Dims z = y;
  for (int s = 0; s < 3; ++s) {
    Pool& pool = made.pool;
    pool.window[s] = square == 0 ? random.Between(1, 3) : s > 0 ? square : 1;
    pool.stride[s] = random.Between(1, wide ? 2 : 3);
    pool.pad_before[s] = random.Between(0, pool.window[s] - 1);
    pool.pad_after[s] = random.Between(0, pool.window[s] - 1);
    made.extent[s] = random.Between(LeastExtent(pool, s), s < 2 ? 5 : wide ? 150 : 40);
    const int64_t rows = pool.OutExtent(s, made.extent[s]), unit = s == 2 ? kSavedUnit : 1;
    made.z_origin[s] = random.Between(0, (rows - 1) / unit) * unit;
    z[3 + s] = RoundUp(random.Between(1, rows), unit);
    const int64_t first = made.z_origin[s] * pool.stride[s] - pool.pad_before[s];
    made.y_origin[s] = FloorDiv(first, unit) * unit;
    y[3 + s] = first - made.y_origin[s] + (z[3 + s] - 1) * pool.stride[s] + pool.window[s];
    if (wide && s == 2) y[5] = RoundUp(y[5], 32);
  }
  const DType dtype = static_cast<DType>(random.Between(0, 3));
  made.saving = SavingOf(making, dtype);
  const bool blocked = device.capabilities().blocked_tiles && random.Between(0, 2) == 0;
  making.y = blocked ? BlockedLayout(AccumulatorOf(dtype), y, 16)
                     : PlainLayout(AccumulatorOf(dtype), y, random.Between(0, 1) == 1);
  making.z = PlainLayout(dtype, z, random.Between(0, 1) == 1);
  FillSums(random, square > 0, &making);
  return making;
}

// Whether z lies in the order of memory of the sums.
enum class Order : int { kOfSums = 0, kOther = 1 };

// Whole tiles whose windows lie side by side and all exist: finishing passes of dense tiles. Bits
// are saved of every other. `narrow`: sums in a type of 16 bits.
Making PoolForwardDense(Random& random, bool narrow, Order order = Order::kOfSums) {
  Making making;
  PoolOutput& made = making.pooled;
  made.pool.mode = static_cast<PoolMode>(random.Between(1, 3));
  making.epilogue = RandomEpilogue(random);
  const int64_t square = random.Between(1, 2);
  const bool saves = random.Between(0, 1) == 0;
  const int64_t unit = saves ? kSavedUnit : random.Between(1, 4);
  const int64_t vector = narrow ? 8 : 4;
  Dims z{random.Between(1, 3), random.Between(1, 2), vector * random.Between(1, 6), 0, 0, 0}, y = z;
  for (int s = 0; s < 3; ++s) {
    made.pool.window[s] = made.pool.stride[s] = s > 0 ? square : 1;
    z[3 + s] = s < 2 ? random.Between(1, 5) : unit * random.Between(1, 9);
    made.extent[s] = y[3 + s] = z[3 + s] * made.pool.window[s];
  }
  const DType dtype = static_cast<DType>(random.Between(narrow ? 2 : 0, 3));
  if (saves) made.saving = SavingOf(making, dtype);
  const bool last = random.Between(0, 1) == 1;
  making.y = PlainLayout(narrow ? dtype : AccumulatorOf(dtype), y, last);
  making.z = PlainLayout(dtype, z, order == Order::kOther ? !last : last);
  FillSums(random, true, &making);
  return making;
}

Result<Tensor> BytesIn(Rig& rig, Stream stream, const TileLayout& layout, void* tile) {
  OOC_ASSIGN(const Array array, rig.NewArray(layout.shape, DType::kByte));
  OOC_TRY(rig.device().Drain(stream, WholeTransfer(array, Operand::kSaved, layout, tile)));
  OOC_TRY(rig.device().SynchronizeStream(stream));
  return array.Read();
}

Status ExpectMade(Device& device, const Making& making) {
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  FinishArgs args;
  args.layout = &making.y;
  args.epilogue = making.epilogue;
  args.pooled = making.pooled;
  OOC_ASSIGN(args.out, rig.NewTile(making.sums, Operand::kY, making.y));
  OOC_ASSIGN(args.pooled.z.data, rig.NewBuffer(making.z.bytes));
  args.pooled.z.layout = &making.z;
  const bool saves = making.pooled.saving.what != Saved::kNothing;
  if (saves) {
    OOC_ASSIGN(args.pooled.saved.data, rig.NewBuffer(making.saved.bytes));
    args.pooled.saved.layout = &making.saved;
  }
  OOC_TRY(device.Finish(stream, args));
  Tensor z(making.z.shape);
  ForEach({}, z.dims, [&](const Dims& index) {
    z.at(index) = Rounded(making.z.dtype, Rounded(making.y.dtype, PooledAt(making, index).value));
  });
  OOC_ASSIGN(const Tensor seen, rig.Download(Operand::kZ, making.z, args.pooled.z.data));
  const std::string difference = FirstDifference(seen, z, Equality::kBits);
  OOC_EXPECT(difference.empty(), "%s: %s", making.Describe().c_str(), difference.c_str());
  if (!saves) return {};
  Tensor bytes(making.saved.shape);
  OOC_ASSIGN(const Tensor saved, BytesIn(rig, stream, making.saved, args.pooled.saved.data));
  ForEach({}, bytes.dims, [&](const Dims& index) {
    const bool there = RowIsThere(making, index);
    bytes.at(index) = there ? ByteAt(making, index, saved.at(index)) : saved.at(index);
  });
  const std::string other = FirstDifference(saved, bytes);
  OOC_EXPECT(other.empty(), "bits of %s: %s", making.Describe().c_str(), other.c_str());
  return {};
}

Status PoolsAndBits(Device& device) {
  Random random(77);
  for (int i = 0; i < kMakings; ++i) {
    OOC_TRY(ExpectMade(device, MakeMaking(device, random, 0, false)));
  }
  return {};
}

Status SquarePools(Device& device) {
  Random random(78);
  for (int i = 0; i < kSquares; ++i) {
    OOC_TRY(ExpectMade(device, MakeMaking(device, random, 1 + i % 3, false)));
  }
  return {};
}

Status WidePools(Device& device) {
  Random random(80);
  for (int i = 0; i < kWide; ++i) {
    OOC_TRY(ExpectMade(device, MakeMaking(device, random, 1 + i % 3, true)));
  }
  return {};
}

Status DensePools(Device& device) {
  Random random(81);
  for (int i = 0; i < kSquares; ++i) OOC_TRY(ExpectMade(device, PoolForwardDense(random, false)));
  return {};
}

// As in chains, where the next layer's engine wants other tiles than this one's. Of columns that
// kernels take eight by eight, and of others; of both orders.
Status TurnedPools(Device& device) {
  Random random(83);
  for (int i = 0; i < kSquares; ++i) {
    OOC_TRY(ExpectMade(device, PoolForwardDense(random, false, Order::kOther)));
  }
  return {};
}

// Of sums that an engine rounded to the type of the tensors; the tiles lie densely, or anyhow.
Status NarrowPools(Device& device) {
  Random random(82);
  for (int i = 0; i < kSquares; ++i) {
    Making making = PoolForwardDense(random, true);
    if (i % 4 == 0)
      making.y = PlainLayout(making.y.dtype, making.y.shape, random.Between(0, 1) == 1);
    OOC_TRY(ExpectMade(device, making));
  }
  return {};
}

constexpr Case kCases[] = {
    {"finish_dense_pools", DensePools},      {"finish_narrow_pools", NarrowPools},
    {"finish_pools_and_bits", PoolsAndBits}, {"finish_square_pools", SquarePools},
    {"finish_turned_pools", TurnedPools},    {"finish_wide_pools", WidePools}};

}  // namespace

std::span<const Case> MakeCases() { return kCases; }

}  // namespace oocdnn::testing
