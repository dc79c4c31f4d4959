// Work inside the device that is no engine: moves between tiles, fills, the zeros of blocked tiles.
#include "base/checked.hpp"
#include "testing/conformance_boxes.hpp"
#include "testing/conformance_rig.hpp"

namespace oocdnn::testing {
namespace {

Dims Plus(const Dims& a, const Dims& b) {
  Dims sum{};
  for (size_t d = 0; d < a.size(); ++d) sum[d] = a[d] + b[d];
  return sum;
}

TileMove RandomMove(const TileLayout& layout, Operand operand, Random& random) {
  TileMove move;
  move.operand = operand;
  move.layout = &layout;
  const Part part = RandomPart(layout.shape, random);
  for (size_t d = 0; d < part.begin.size(); ++d) {
    move.from_begin[d] = part.begin[d];
    move.extent[d] = part.end[d] - part.begin[d];
    move.to_begin[d] = random.Between(0, layout.shape[d] - move.extent[d]);
  }
  return move;
}

Status MovesBetweenTiles(Device& device) {
  Random random(6);
  for (int round = 0; round < 150; ++round) {
    Rig rig(device);
    const Dims extent = RandomDims(random);
    const Operand operand = RandomOperand(random);
    const TileLayout layout =
        RandomLayout(device, kAllDTypes[random.Between(0, 3)], extent, operand, random);
    TileMove move = RandomMove(layout, operand, random);
    const Tensor from = Integers(extent, random);
    Tensor wanted = Integers(extent, random);
    OOC_ASSIGN(const Stream stream, rig.MainStream());
    OOC_ASSIGN(void* source, rig.NewTile(from, operand, layout));
    OOC_ASSIGN(move.to, rig.NewTile(wanted, operand, layout));
    move.from = source;
    OOC_TRY(device.Move(stream, move));
    OOC_TRY(device.SynchronizeStream(stream));
    ForEach({}, move.extent, [&](const Dims& i) {
      wanted.at(Plus(move.to_begin, i)) = from.at(Plus(move.from_begin, i));
    });
    OOC_ASSIGN(const Tensor seen, rig.Read(operand, layout, move.to));
    const std::string difference = FirstDifference(seen, wanted);
    OOC_EXPECT(difference.empty(), "move of %s from %s to %s in a tile %s, block %lld: %s",
               Text(move.extent).c_str(), Text(move.from_begin).c_str(),
               Text(move.to_begin).c_str(), Text(extent).c_str(),
               static_cast<long long>(layout.channel_block), difference.c_str());
  }
  return {};
}

// The rolling window: rows that the next tile shares come from the last one, the rest is fetched.
Status RollingWindow(Device& device) {
  constexpr int64_t kRows = 40, kWindow = 10, kStep = 7;
  constexpr Dims kTensor{2, 1, 5, 1, kRows, 11};
  constexpr Dims kTile{2, 1, 5, 1, kWindow, 11};
  Random random(7);
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  const Tensor tensor = Integers(kTensor, random);
  OOC_ASSIGN(const Array array, rig.NewArray(kTensor, DType::kFloat32));
  array.Write(tensor);
  const bool blocked = device.capabilities().blocked_tiles;
  const TileLayout layout =
      blocked ? BlockedLayout(DType::kFloat32, kTile, 8) : PlainLayout(DType::kFloat32, kTile);
  TileLayout padded = layout;  // with the channels that do not exist, which must be zero
  if (blocked) padded.shape[2] = 8;
  void* slots[2] = {};
  for (void*& slot : slots) {
    OOC_ASSIGN(slot, rig.NewBuffer(layout.bytes));
  }
  int64_t begin = 0;
  for (int step = 0; begin + kWindow <= kRows; ++step, begin += kStep) {
    Transfer fetch = WholeTransfer(array, Operand::kX, layout, slots[step % 2]);
    fetch.box = {
        {0, 0, 0, 0, begin, 0}, kTile, {0, 0, 0, 0, begin, 0}, {2, 1, 5, 1, begin + kWindow, 11}};
    fetch.tile_end = kTile;
    if (step > 0) {
      TileMove move;
      move.from = slots[(step + 1) % 2];
      move.to = slots[step % 2];
      move.from_begin = {0, 0, 0, 0, kStep, 0};
      move.extent = {2, 1, 5, 1, kWindow - kStep, 11};
      move.layout = &layout;
      OOC_TRY(device.Move(stream, move));
      fetch.tile_begin[4] = kWindow - kStep;
    }
    OOC_TRY(device.Fetch(stream, fetch));
    OOC_TRY(device.SynchronizeStream(stream));
    Tensor wanted(padded.shape);
    ForEach({}, kTile, [&](const Dims& i) {
      wanted.at(i) = tensor.at({i[0], i[1], i[2], i[3], i[4] + begin, i[5]});
    });
    OOC_ASSIGN(const Tensor seen, rig.Read(Operand::kX, padded, slots[step % 2]));
    const std::string difference = FirstDifference(seen, wanted);
    OOC_EXPECT(difference.empty(), "window at row %lld: %s", static_cast<long long>(begin),
               difference.c_str());
  }
  return {};
}

Status FillWritesBytes(Device& device) {
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  const TileLayout layout = PlainLayout(DType::kFloat32, {1, 1, 1, 1, 1, 64});
  OOC_ASSIGN(void* tile, rig.NewTile(Tensor(layout.shape, 3.0), Operand::kX, layout));
  OOC_TRY(device.Fill(stream, tile, 100, 0x3f));
  OOC_TRY(device.SynchronizeStream(stream));
  Tensor wanted(layout.shape, 3.0);
  const auto pattern = static_cast<double>(std::bit_cast<float>(0x3f3f3f3fu));
  for (size_t i = 0; i < 25; ++i) wanted.values[i] = pattern;
  OOC_ASSIGN(const Tensor seen, rig.Download(Operand::kX, layout, tile));
  const std::string difference = FirstDifference(seen, wanted);
  OOC_EXPECT(difference.empty(), "100 bytes 0x3f over floats of 3: %s", difference.c_str());
  return {};
}

// Engines read whole blocks: channels that do not exist must be zero after a fetch of the tile.
Status BlockedTilesHaveZeroPadding(Device& device) {
  if (!device.capabilities().blocked_tiles) {
    return Error(Code::kUnsupported, "the device has no tiles with channel blocks");
  }
  Random random(8);
  for (const int64_t block : {8, 16}) {
    for (const int64_t channels : {1, 5, 8, 19}) {
      Rig rig(device);
      OOC_ASSIGN(const Stream stream, rig.MainStream());
      const TileLayout layout = BlockedLayout(DType::kFloat32, {2, 1, channels, 1, 3, 4}, block);
      OOC_ASSIGN(void* tile, rig.NewBuffer(layout.bytes));
      OOC_TRY(device.Fill(stream, tile, layout.bytes, 0xff));
      OOC_TRY(rig.Upload(Integers(layout.shape, random), Operand::kX, layout, tile));
      TileLayout padded = layout;
      padded.shape[2] = RoundUp(channels, block);
      OOC_ASSIGN(const Tensor seen, rig.Read(Operand::kX, padded, tile));
      bool zero = true;
      ForEach({0, 0, channels, 0, 0, 0}, padded.shape,
              [&](const Dims& i) { zero = zero && seen.at(i) == 0.0; });
      OOC_EXPECT(zero, "%lld channels in blocks of %lld: the rest of the last block is not zero",
                 static_cast<long long>(channels), static_cast<long long>(block));
    }
  }
  return {};
}

constexpr Case kCases[] = {
    {"moves_between_tiles", MovesBetweenTiles},
    {"rolling_window", RollingWindow},
    {"fill_writes_bytes", FillWritesBytes},
    {"blocked_tiles_have_zero_padding", BlockedTilesHaveZeroPadding},
};

}  // namespace

std::span<const Case> MoveCases() { return kCases; }

}  // namespace oocdnn::testing
