// Conformance of Device::PoolBackward: every kind of pool and none, for tiles that begin before the
// tensor, inside it, and that pass its end.
#include <cmath>

#include "base/checked.hpp"
#include "testing/conformance_boxes.hpp"
#include "testing/conformance_conv.hpp"

namespace oocdnn::testing {
namespace {

constexpr int kRestorings = 80, kSquares = 480, kWide = 360;
constexpr double kShares = 36.0;  // a multiple of what an axis may count, on two axes, and 1

// The whole of dz and of the codes of its bits, and a tile of dy.
struct Restoring {
  TileLayout dy, z, saved;
  Tensor dz, codes, slopes;
  PoolBackwardArgs args;

  [[nodiscard]] std::string Describe() const {
    return Format("a %s tile of dy %s, block %lld, from %s dz %s, mode %d, saved %d",
                  Name(dy.dtype), Text(dy.shape).c_str(), static_cast<long long>(dy.channel_block),
                  Name(z.dtype), Text(z.shape).c_str(), static_cast<int>(args.pool.mode),
                  static_cast<int>(args.saving.what));
  }
};

// Any windows, or those of `square` rows and columns that touch or overlap by one: there are
// kernels of their own for them; `wide`: that begin with the tensor.
void RandomPool(Random& random, int64_t square, bool wide, DType dtype, PoolBackwardArgs* args) {
  Problem problem;  // what is saved
  Pool& pool = args->pool;
  pool.mode = static_cast<PoolMode>(random.Between(0, kPoolModes - 1));
  pool.ceil = pool.pools() && random.Between(0, 2) == 0;
  const int64_t behind = random.Between(0, 4);
  problem.direction = Direction::kBackwardData;
  problem.dtype = dtype;
  problem.clips = behind == 1 || behind == 2;
  problem.slopes = behind == 3;
  for (int s = 0; s < 3; ++s) {
    if (pool.pools()) {
      const int64_t most = s == 0 ? 1 : 3;
      pool.window[s] = square > 0 ? std::min(square, most) : random.Between(1, most);
      pool.stride[s] = square > 0 ? std::min<int64_t>(pool.window[s], 2) : random.Between(1, 3);
      pool.pad_before[s] = random.Between(0, pool.window[s] - 1);
      pool.pad_after[s] = random.Between(0, pool.window[s] - 1);
    }
    if (wide && square < 3) pool.pad_before[s] = 0;
    const int64_t most = s < 2 ? 6 : square > 0 && !wide ? 18 : 40;
    args->extent[s] = random.Between(LeastExtent(pool, s), most);
  }
  problem.pool = pool;
  args->saving = problem.saving();
}

// The part of the tensor that a tile along one axis holds: from there, so many rows.
struct Held {
  int64_t begin = 0, rows = 0;
};

// At least the rows [first, end) of `all`, where there are any, and some around them.
Held Around(int64_t first, int64_t end, int64_t all, Random& random) {
  const int64_t begin = std::max<int64_t>(first, 0) - random.Between(0, 2);
  return {begin, std::max<int64_t>(std::min(end, all) + random.Between(0, 2) - begin, 1)};
}

Restoring MakeRestoring(const Device& device, Random& random, int64_t square, bool wide) {
  Restoring made;
  PoolBackwardArgs& args = made.args;
  const DType dtype = static_cast<DType>(random.Between(0, 3));
  RandomPool(random, square, wide, dtype, &args);
  const Pool& pool = args.pool;
  const int64_t images = random.Between(1, square > 0 ? 9 : 2);
  Dims dy{images, random.Between(1, 2), random.Between(1, 20), 0, 0, 0};
  if (wide) dy[2] = RoundUp(dy[2], 4);
  Dims whole_z = dy, whole_codes = dy, z = dy, saved = dy;
  args.box.valid_end = dy;
  for (int s = 0; s < 3; ++s) {
    const int64_t extent = args.extent[s];
    const bool whole = wide && s == 2;  // vectors
    const int64_t unaligned = random.Between(-3, extent - 1);
    const int64_t first = whole ? FloorDiv(unaligned, 8) * 8 : unaligned;
    const bool winners = args.saving.what == Saved::kWinners;
    args.box.origin[3 + s] = first;
    dy[3 + s] = whole ? RoundUp(random.Between(1, extent + 3), 8) : random.Between(1, extent + 3);
    const int64_t there = std::max<int64_t>(first, 0);
    const int64_t begin = random.Between(0, 1) == 0 ? there : random.Between(there, extent);
    const int64_t end = std::min(first + dy[3 + s], extent);
    args.box.valid_begin[3 + s] = std::min(begin, end);
    args.box.valid_end[3 + s] = end;
    whole_z[3 + s] = pool.OutExtent(s, extent);
    whole_codes[3 + s] = winners ? whole_z[3 + s] : pool.RowsReached(s, extent);
    const int64_t lead = pool.pad_before[s] - pool.window[s];
    const Held rows =
        Around(FloorDiv(args.box.valid_begin[3 + s] + lead, pool.stride[s]) + 1,
               FloorDiv(end - 1 + pool.pad_before[s], pool.stride[s]) + 1, whole_z[3 + s], random);
    args.z_origin[s] = rows.begin;
    z[3 + s] = rows.rows;
    const Held bits =
        winners ? rows : Around(args.box.valid_begin[3 + s], end, whole_codes[3 + s], random);
    const int64_t unit = s == 2 ? kSavedUnit : 1;
    args.saved_origin[s] = FloorDiv(bits.begin, unit) * unit;
    saved[3 + s] = RoundUp(bits.begin + bits.rows - args.saved_origin[s], unit);
  }
  if (wide) {
    args.z_origin[2] = FloorDiv(args.z_origin[2], 4) * 4;
    z[5] = RoundUp(z[5] + 4, 4);
  }
  args.box.extent = dy;
  saved[5] = args.saving.RowBytes(saved[5]);
  const DType tiles = random.Between(0, 1) == 1 ? dtype : AccumulatorOf(dtype);
  const bool blocked = device.capabilities().blocked_tiles && random.Between(0, 2) == 0;
  made.dy =
      blocked ? BlockedLayout(tiles, dy, 16) : PlainLayout(tiles, dy, random.Between(0, 1) == 1);
  made.z = PlainLayout(dtype, z, random.Between(0, 1) == 1);
  made.saved = PlainLayout(DType::kByte, saved);
  made.dz = Integers(whole_z, random);
  const bool averages = pool.mode == PoolMode::kAverage || pool.mode == PoolMode::kAverageInside;
  for (double& value : made.dz.values) value = averages ? value * kShares : value;
  made.codes = Tensor(whole_codes);
  const int64_t last = args.saving.what == Saved::kWinners ? pool.Elements() : 1;
  for (double& code : made.codes.values) {
    code = static_cast<double>(
        std::min(random.Between(0, last), (int64_t{1} << args.saving.code_bits()) - 1));
  }
  made.slopes = Tensor(whole_codes);
  for (double& slope : made.slopes.values) slope = static_cast<double>(random.Between(-1, 4)) / 2;
  return made;
}

// What comes back to element `row` of channel `at` from window `z` of dz.
double ShareOf(const Restoring& made, Dims at, const Spatial& row, const Spatial& z) {
  const PoolBackwardArgs& args = made.args;
  const Pool& pool = args.pool;
  double counted = 1.0;
  int64_t place = 0;
  for (int s = 0; s < 3; ++s) {
    const int64_t first = z[s] * pool.stride[s] - pool.pad_before[s];
    const int64_t end = first + pool.window[s], extent = args.extent[s];
    if (row[s] < first || row[s] >= end) return 0.0;
    at[3 + s] = z[s];
    place = place * pool.window[s] + row[s] - first;
    const int64_t inside = std::min(end, extent) - std::max<int64_t>(first, 0);
    const int64_t padded = std::min(end, extent + pool.pad_after[s]) - first;
    if (pool.mode == PoolMode::kAverage) counted *= static_cast<double>(padded);
    if (pool.mode == PoolMode::kAverageInside) counted *= static_cast<double>(inside);
  }
  const bool winners = args.saving.what == Saved::kWinners;
  if (winners && made.codes.at(at) != static_cast<double>(place)) return 0.0;
  const double slope = winners && args.saving.slopes() ? made.slopes.at(at) : 1.0;
  return made.dz.at(at) * slope / counted;
}

// One element of the tile, from the definition.
double RestoredAt(const Restoring& made, const Dims& index) {
  const PoolBackwardArgs& args = made.args;
  Dims at = index;
  Spatial row{};
  bool coded = true;
  for (int s = 0; s < 3; ++s) {
    at[3 + s] = row[s] = args.box.origin[3 + s] + index[3 + s];
    if (row[s] < args.box.valid_begin[3 + s] || row[s] >= args.box.valid_end[3 + s]) return 0.0;
    coded = coded && row[s] < made.codes.dims[3 + s];
  }
  const bool alive = args.saving.what == Saved::kAlive, sloped = alive && args.saving.slopes();
  if (alive && (!coded || (!sloped && made.codes.at(at) == 0.0))) return 0.0;
  double sum = 0.0;
  const Dims channel{index[0], index[1], index[2], 0, 0, 0};
  const Dims& z = made.dz.dims;
  ForEach({}, {1, 1, 1, z[3], z[4], z[5]}, [&](const Dims& window) {
    sum += ShareOf(made, channel, row, {window[3], window[4], window[5]});
  });
  return sloped ? sum * made.slopes.at(at) : sum;
}

// A tile of a whole tensor, with `outside` where that has nothing.
Tensor TileFrom(const Tensor& whole, const Dims& extents, const Spatial& origin, double outside) {
  Tensor tile(extents);
  ForEach({}, extents, [&](const Dims& index) {
    Dims at = index;
    bool there = true;
    for (int s = 0; s < 3; ++s) {
      at[3 + s] += origin[s];
      there = there && at[3 + s] >= 0 && at[3 + s] < whole.dims[3 + s];
    }
    tile.at(index) = there ? whole.at(at) : outside;
  });
  return tile;
}

constexpr double kPlace = 2.0;  // in a window of three that began before the tensor

// Of elements with slopes.
Tensor SlopeBytesOf(const Restoring& made) {
  const Saving& saving = made.args.saving;
  const int64_t size = saving.bits / 8, slope_bytes = SizeOf(saving.slope);
  Dims elements = made.saved.shape;
  elements[5] /= size;
  const Tensor codes = TileFrom(made.codes, elements, made.args.saved_origin, kPlace);
  const Tensor slopes = TileFrom(made.slopes, elements, made.args.saved_origin, 1.0);
  Tensor bytes(made.saved.shape);
  ForEach({}, bytes.dims, [&](const Dims& index) {
    Dims element = index;
    element[5] /= size;
    const int64_t byte = index[5] % size;
    const auto code = static_cast<uint32_t>(codes.at(element));
    bytes.at(index) = byte < slope_bytes ? ByteOf(saving.slope, slopes.at(element), byte)
                                         : (code >> 8 * (byte - slope_bytes)) & 0xffu;
  });
  return bytes;
}

Tensor BytesOf(const Restoring& made) {
  if (made.args.saving.slopes()) return SlopeBytesOf(made);
  const int64_t bits = made.args.saving.bits;
  Dims elements = made.saved.shape;
  elements[5] = elements[5] * 8 / bits;
  const Tensor codes = TileFrom(made.codes, elements, made.args.saved_origin, kPlace);
  Tensor bytes(made.saved.shape);
  ForEach({}, bytes.dims, [&](const Dims& index) {
    uint32_t byte = 0;
    for (int64_t bit = 0; bit < 8; ++bit) {
      Dims element = index;
      element[5] = (index[5] * 8 + bit) / bits;
      const auto code = static_cast<uint32_t>(codes.at(element));
      byte |= ((code >> ((index[5] * 8 + bit) % bits)) & 1u) << bit;
    }
    bytes.at(index) = byte;
  });
  return bytes;
}

Status PutBytes(Rig& rig, const Restoring& made, void* tile) {
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  OOC_ASSIGN(const Array array, rig.NewArray(made.saved.shape, DType::kByte));
  array.Write(BytesOf(made));
  OOC_TRY(rig.device().Fetch(stream, WholeTransfer(array, Operand::kSaved, made.saved, tile)));
  return rig.device().SynchronizeStream(stream);
}

Status ExpectRestored(Device& device, const Restoring& made) {
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  PoolBackwardArgs args = made.args;
  args.layout = &made.dy;
  OOC_ASSIGN(args.dy, rig.NewBuffer(made.dy.bytes));
  OOC_TRY(device.Fill(stream, args.dy, made.dy.bytes, 0xff));
  args.z.layout = &made.z;
  const double nan = std::nan("");
  const Tensor dz = TileFrom(made.dz, made.z.shape, args.z_origin, nan);
  OOC_ASSIGN(args.z.data, rig.NewTile(dz, Operand::kZ, made.z));
  if (args.saving.what != Saved::kNothing) {
    args.saved.layout = &made.saved;
    OOC_ASSIGN(args.saved.data, rig.NewBuffer(made.saved.bytes));
    OOC_TRY(PutBytes(rig, made, args.saved.data));
  }
  OOC_TRY(device.PoolBackward(stream, args));
  Tensor wanted(made.dy.shape);
  ForEach({}, wanted.dims, [&](const Dims& index) {
    wanted.at(index) = Rounded(made.dy.dtype, RestoredAt(made, index));
  });
  OOC_ASSIGN(const Tensor seen, rig.Download(Operand::kY, made.dy, args.dy));
  const std::string difference = FirstDifference(seen, wanted);
  OOC_EXPECT(difference.empty(), "%s: %s", made.Describe().c_str(), difference.c_str());
  return {};
}

Status FromPoolsAndBits(Device& device) {
  Random random(78);
  for (int i = 0; i < kRestorings; ++i) {
    OOC_TRY(ExpectRestored(device, MakeRestoring(device, random, 0, false)));
  }
  return {};
}

Status FromSquarePools(Device& device) {
  Random random(79);
  for (int i = 0; i < kSquares; ++i) {
    OOC_TRY(ExpectRestored(device, MakeRestoring(device, random, 1 + i % 3, false)));
  }
  return {};
}

Status FromWidePools(Device& device) {
  Random random(81);
  for (int i = 0; i < kWide; ++i) {
    OOC_TRY(ExpectRestored(device, MakeRestoring(device, random, 1 + i % 3, true)));
  }
  return {};
}

constexpr Case kCases[] = {{"restore_from_pools_and_bits", FromPoolsAndBits},
                           {"restore_from_square_pools", FromSquarePools},
                           {"restore_from_wide_pools", FromWidePools}};

}  // namespace

std::span<const Case> RestoreCases() { return kCases; }

}  // namespace oocdnn::testing
