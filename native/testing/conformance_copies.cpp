// Fetches and drains: element types, layouts, strides, boxes that reach past the tensor, parts.
#include <cmath>
#include <limits>

#include "testing/conformance_boxes.hpp"
#include "testing/conformance_rig.hpp"

namespace oocdnn::testing {
namespace {

constexpr int kRounds = 150;

// One random copy: a tensor in host memory, and a tile for a box of it.
struct Copy {
  Tensor tensor;  // what the array holds
  Array array;
  Operand operand = Operand::kX;
  TileLayout layout;
  Box box;
  Part part;  // of the tile, what is copied
  void* tile = nullptr;

  [[nodiscard]] Transfer AsTransfer() const {
    Transfer transfer = WholeTransfer(array, operand, layout, tile);
    transfer.box = box;
    transfer.tile_begin = part.begin;
    transfer.tile_end = part.end;
    return transfer;
  }
  [[nodiscard]] std::string Describe() const {
    return Format(
        "%s tile of extent %s, block %lld, %s; box at %s, part %s to %s, of a %s tensor "
        "%s with strides %s",
        Name(operand, Direction::kForward), Text(box.extent).c_str(),
        static_cast<long long>(layout.channel_block), Name(layout.dtype), Text(box.origin).c_str(),
        Text(part.begin).c_str(), Text(part.end).c_str(), Name(array.view.dtype),
        Text(tensor.dims).c_str(), Text(array.view.stride).c_str());
  }
};

Result<Copy> RandomCopy(Rig& rig, Random& random, bool whole) {
  Copy copy;
  const Dims dims = RandomDims(random);
  const DType dtype = kAllDTypes[random.Between(0, 3)];
  copy.tensor = Integers(dims, random);
  copy.operand = RandomOperand(random);
  copy.box = RandomBox(dims, random);
  copy.part = whole ? Part{{}, copy.box.extent} : RandomPart(copy.box.extent, random);
  copy.layout = RandomLayout(rig.device(), kAllDTypes[random.Between(0, 3)], copy.box.extent,
                             copy.operand, random);
  OOC_ASSIGN(copy.array, rig.NewArray(dims, dtype, static_cast<Memory>(random.Between(0, 3))));
  copy.array.Write(copy.tensor);
  OOC_ASSIGN(copy.tile, rig.NewBuffer(copy.layout.bytes));
  return copy;
}

bool Inside(const Part& part, const Dims& index) {
  for (size_t d = 0; d < index.size(); ++d) {
    if (index[d] < part.begin[d] || index[d] >= part.end[d]) return false;
  }
  return true;
}

// A fetch of the copy over a tile that holds `before`, against the definition.
Status ExpectFetch(Rig& rig, const Copy& copy, const Tensor& before) {
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  OOC_TRY(rig.device().Fetch(stream, copy.AsTransfer()));
  OOC_TRY(rig.device().SynchronizeStream(stream));
  Tensor wanted = before;
  ForEach(copy.part.begin, copy.part.end, [&](const Dims& i) {
    Dims at{};
    wanted.at(i) = IsValid(copy.box, i, &at) ? copy.tensor.at(at) : 0.0;
  });
  OOC_ASSIGN(const Tensor seen, rig.Read(copy.operand, copy.layout, copy.tile));
  const std::string difference = FirstDifference(seen, wanted);
  OOC_EXPECT(difference.empty(), "fetch: %s; %s", difference.c_str(), copy.Describe().c_str());
  OOC_EXPECT(copy.array.GapsIntact(), "a fetch wrote to the host: %s", copy.Describe().c_str());
  return {};
}

Status FetchOfBoxes(Device& device) {
  Random random(1);
  for (int round = 0; round < kRounds; ++round) {
    Rig rig(device);
    OOC_ASSIGN(const Copy copy, RandomCopy(rig, random, true));
    OOC_ASSIGN(const Stream stream, rig.MainStream());
    OOC_TRY(device.Fill(stream, copy.tile, copy.layout.bytes, 0xff));
    OOC_TRY(ExpectFetch(rig, copy, Tensor(copy.box.extent)));
  }
  return {};
}

Status FetchOfParts(Device& device) {
  Random random(2);
  for (int round = 0; round < kRounds; ++round) {
    Rig rig(device);
    OOC_ASSIGN(const Copy copy, RandomCopy(rig, random, false));
    const Tensor before = Integers(copy.box.extent, random);
    OOC_TRY(rig.Upload(before, copy.operand, copy.layout, copy.tile));
    OOC_TRY(ExpectFetch(rig, copy, before));
  }
  return {};
}

Status DrainOfParts(Device& device) {
  Random random(3);
  for (int round = 0; round < kRounds; ++round) {
    Rig rig(device);
    OOC_ASSIGN(const Copy copy, RandomCopy(rig, random, false));
    OOC_ASSIGN(const Stream stream, rig.MainStream());
    const Tensor tile = Integers(copy.box.extent, random);
    OOC_TRY(rig.Upload(tile, copy.operand, copy.layout, copy.tile));
    OOC_TRY(device.Drain(stream, copy.AsTransfer()));
    OOC_TRY(device.SynchronizeStream(stream));
    Tensor wanted = copy.tensor;
    ForEach({}, copy.box.extent, [&](const Dims& i) {
      Dims at{};
      if (Inside(copy.part, i) && IsValid(copy.box, i, &at)) wanted.at(at) = tile.at(i);
    });
    const std::string difference = FirstDifference(copy.array.Read(), wanted);
    OOC_EXPECT(difference.empty(), "drain: %s; %s", difference.c_str(), copy.Describe().c_str());
    OOC_EXPECT(copy.array.GapsIntact(), "a drain wrote between the elements: %s",
               copy.Describe().c_str());
  }
  return {};
}

// Streams that copy in and out, each with bounce memory of its own.
struct Through {
  Stream in = nullptr, out = nullptr;
  Event fetched = nullptr;
  Bounce in_bounce, out_bounce;
};

Result<Through> ThroughMemory(Rig& rig, int64_t bytes) {
  Through through;
  OOC_ASSIGN(through.in, rig.NewStream("fetch"));
  OOC_ASSIGN(through.out, rig.NewStream("drain"));
  OOC_ASSIGN(through.fetched, rig.NewEvent());
  OOC_ASSIGN(through.in_bounce.data, rig.NewBuffer(bytes));
  OOC_ASSIGN(through.out_bounce.data, rig.NewBuffer(bytes));
  through.in_bounce.bytes = through.out_bounce.bytes = bytes;
  return through;
}

// Enqueues the way of an array into a tile and out of it into an array like it.
Result<Array> There(Rig& rig, const Through& through, const Array& from, Memory memory,
                    const TileLayout& layout) {
  Device& device = rig.device();
  OOC_ASSIGN(const Array to, rig.NewArray(from.dims, from.view.dtype, memory));
  OOC_ASSIGN(void* const tile, rig.NewBuffer(layout.bytes));
  Transfer fetch = WholeTransfer(from, Operand::kX, layout, tile);
  fetch.bounce = through.in_bounce;
  OOC_TRY(device.Fetch(through.in, fetch));
  OOC_TRY(device.Record(through.fetched, through.in));
  OOC_TRY(device.Wait(through.out, through.fetched));
  Transfer drain = WholeTransfer(to, Operand::kX, layout, tile);
  drain.bounce = through.out_bounce;
  OOC_TRY(device.Drain(through.out, drain));
  return to;
}

// Copies in pieces: through bounce memory of any size, from rows long enough for a copy engine to
// tiles in another order or type, several in a row through the same memory, there and back.
Status CopiesThroughBounceMemory(Device& device) {
  Random random(6);
  constexpr size_t kCopies = 3;
  for (int round = 0; round < kRounds / 3; ++round) {
    Rig rig(device);
    OOC_ASSIGN(const Through through, ThroughMemory(rig, random.Between(1, 40) * 256));
    const Dims dims{random.Between(1, 3),  1,
                    random.Between(1, 40), random.Between(1, 2),
                    random.Between(1, 4),  random.Between(60, 300)};
    const auto memory = static_cast<Memory>(random.Between(0, 3));
    const DType dtype = kAllDTypes[random.Between(0, 3)];
    std::vector<Tensor> tensors;
    std::vector<Array> arrays;
    for (size_t i = 0; i < kCopies; ++i) {
      tensors.push_back(Integers(dims, random));
      OOC_ASSIGN(const Array from, rig.NewArray(dims, dtype, memory));
      from.Write(tensors.back());
      const DType tile_dtype = kAllDTypes[random.Between(0, 3)];
      const TileLayout layout = RandomLayout(device, tile_dtype, dims, Operand::kX, random);
      OOC_ASSIGN(const Array to, There(rig, through, from, memory, layout));
      arrays.push_back(to);
    }
    OOC_TRY(device.SynchronizeStream(through.out));
    for (size_t i = 0; i < kCopies; ++i) {
      const std::string difference = FirstDifference(arrays[i].Read(), tensors[i]);
      OOC_EXPECT(difference.empty() && arrays[i].GapsIntact(),
                 "copy %zu of %s through %lld bytes, %s with strides %s: %s", i, Text(dims).c_str(),
                 static_cast<long long>(through.in_bounce.bytes), Name(dtype),
                 Text(arrays[i].view.stride).c_str(), difference.c_str());
    }
  }
  return {};
}

// Every pair of element types, there and back, in every order of host memory.
Status RoundTripOfDtypes(Device& device) {
  Random random(4);
  constexpr Dims kShape{2, 1, 5, 2, 3, 7};
  for (const DType host : kAllDTypes) {
    for (const DType tile_dtype : kAllDTypes) {
      for (int memory = 0; memory < kMemories; ++memory) {
        Rig rig(device);
        OOC_ASSIGN(const Stream stream, rig.MainStream());
        const Tensor tensor = Integers(kShape, random);
        const TileLayout layout = PlainLayout(tile_dtype, kShape);
        OOC_ASSIGN(const Array in, rig.NewArray(kShape, host, static_cast<Memory>(memory)));
        OOC_ASSIGN(const Array out, rig.NewArray(kShape, host, static_cast<Memory>(memory)));
        OOC_ASSIGN(void* tile, rig.NewBuffer(layout.bytes));
        in.Write(tensor);
        OOC_TRY(device.Fetch(stream, WholeTransfer(in, Operand::kX, layout, tile)));
        OOC_TRY(device.Drain(stream, WholeTransfer(out, Operand::kX, layout, tile)));
        OOC_TRY(device.SynchronizeStream(stream));
        const std::string difference = FirstDifference(out.Read(), tensor);
        OOC_EXPECT(difference.empty() && out.GapsIntact(), "%s through a %s tile: %s", Name(host),
                   Name(tile_dtype), difference.c_str());
      }
    }
  }
  return {};
}

// Numbers at which rounding to 16 bits is hard: ties, subnormals, overflow, NaN.
Tensor HardNumbers() {
  Random random(5);
  Tensor tensor({1, 1, 1, 1, 16, 64});
  for (double& value : tensor.values) {
    const auto exponent = static_cast<int>(random.Between(-30, 20));
    value = Rounded(DType::kFloat32, std::ldexp(random.Real(), exponent));
  }
  const double infinity = std::numeric_limits<double>::infinity();
  const double special[] = {0.0,           -0.0,          infinity,     -infinity,
                            std::nan(""),  65504.0,       65519.0,      65520.0,
                            1.0 + 0x1p-11, 1.0 + 0x3p-11, 1.0 + 0x1p-8, 1.0 + 0x3p-8,
                            0x1p-24,       0x1p-25,       0x3p-25,      0x1p-14 - 0x1p-25};
  for (size_t i = 0; i < std::size(special); ++i) tensor.values[i] = special[i];
  return tensor;
}

Status SixteenBitsRoundToNearestEven(Device& device) {
  const Tensor tensor = HardNumbers();
  for (const DType narrow : {DType::kFloat16, DType::kBFloat16}) {
    Tensor wanted = tensor;
    for (double& value : wanted.values) value = Rounded(narrow, value);
    for (const bool at_fetch : {true, false}) {
      Rig rig(device);
      OOC_ASSIGN(const Stream stream, rig.MainStream());
      const TileLayout layout = PlainLayout(at_fetch ? narrow : DType::kFloat32, tensor.dims);
      const DType out_dtype = at_fetch ? DType::kFloat32 : narrow;
      OOC_ASSIGN(const Array in, rig.NewArray(tensor.dims, DType::kFloat32));
      OOC_ASSIGN(const Array out, rig.NewArray(tensor.dims, out_dtype));
      OOC_ASSIGN(void* tile, rig.NewBuffer(layout.bytes));
      in.Write(tensor);
      OOC_TRY(device.Fetch(stream, WholeTransfer(in, Operand::kX, layout, tile)));
      OOC_TRY(device.Drain(stream, WholeTransfer(out, Operand::kX, layout, tile)));
      OOC_TRY(device.SynchronizeStream(stream));
      const std::string difference = FirstDifference(out.Read(), wanted, Equality::kBits);
      OOC_EXPECT(difference.empty(), "f32 to %s at the %s: %s", Name(narrow),
                 at_fetch ? "fetch" : "drain", difference.c_str());
    }
  }
  return {};
}

constexpr Case kCases[] = {
    {"fetch_of_boxes", FetchOfBoxes},
    {"fetch_of_parts", FetchOfParts},
    {"drain_of_parts", DrainOfParts},
    {"copies_through_bounce_memory", CopiesThroughBounceMemory},
    {"round_trip_of_dtypes", RoundTripOfDtypes},
    {"sixteen_bits_round_to_nearest_even", SixteenBitsRoundToNearestEven},
};

}  // namespace

std::span<const Case> CopyCases() { return kCases; }

}  // namespace oocdnn::testing
