// The passes of a normalisation: on parts of tiles of every layout and type, by tables that hold
// more than the tile's channels. Whole numbers and powers of two, so that all of it is exact.
#include <array>
#include <cmath>
#include <limits>

#include "testing/conformance_boxes.hpp"
#include "testing/conformance_rig.hpp"

namespace oocdnn::testing {
namespace {

constexpr int kPasses = 60;

// A pass as a case wants it: the tile, and the table that its own begins at `first` of.
struct Norm {
  NormArgs args;
  TileLayout layout, table_layout;
  Tensor tile, table;
  Dims first{};

  [[nodiscard]] std::string Describe() const {
    return Format("%s of %s [%s, %s) of %s, blocks of %lld, activation %d, rounded to %s",
                  args.pass == NormPass::kSum ? "sum" : "normalisation", Name(layout.dtype),
                  Text(args.begin).c_str(), Text(args.end).c_str(), Text(layout.shape).c_str(),
                  static_cast<long long>(layout.channel_block), static_cast<int>(args.activation),
                  Name(args.rounded));
  }
  [[nodiscard]] bool InPart(const Dims& i) const {
    bool in = true;
    for (size_t d = 0; d < i.size(); ++d) in = in && i[d] >= args.begin[d] && i[d] < args.end[d];
    return in;
  }
  // The first number of an element's pair.
  [[nodiscard]] Dims PairAt(const Dims& i) const {
    return {first[0] + i[0], first[1] + i[1], first[2] + i[2], 0, 0, 0};
  }
};

double Second(const Tensor& table, Dims at) {
  at[5] = 1;
  return table.at(at);
}

Norm MakeNorm(const Device& device, NormPass pass, DType dtype, const Dims& shape, Random& random) {
  Norm norm;
  norm.layout = RandomLayout(device, dtype, shape, Operand::kX, random);
  norm.args.pass = pass;
  norm.args.layout = &norm.layout;
  norm.args.rounded = dtype;
  const Part part = RandomPart(shape, random);
  norm.args.begin = part.begin;
  norm.args.end = part.end;
  Dims dims{1, 1, 1, 1, 1, 2};
  for (size_t d = 0; d < 3; ++d) {
    norm.first[d] = random.Between(0, 2);
    dims[d] = norm.first[d] + shape[d] + random.Between(0, 2);
  }
  norm.table_layout = PlainLayout(norm.args.TableType(), dims);
  norm.args.step = {dims[1] * dims[2], dims[2], 1};
  norm.tile = Integers(shape, random);
  norm.table = Integers(dims, random);
  norm.args.layout = nullptr;  // of another object, once this one is returned
  return norm;
}

double Activated(const NormArgs& args, double v) {
  if (args.activation == Activation::kRelu) return v < 0 ? 0 : v;
  if (args.activation != Activation::kClippedRelu) return v;
  return std::fmin(v < 0 ? 0 : v, args.parameter);
}

// What the tile and the table hold afterwards.
void Expect(const Norm& norm, Tensor* tile, Tensor* table) {
  const NormArgs& args = norm.args;
  ForEach(args.begin, args.end, [&](const Dims& i) {
    const Dims at = norm.PairAt(i);
    double& v = tile->at(i);
    if (args.pass == NormPass::kSum) {
      const double rounded = Rounded(args.rounded, v);
      Dims square = at;
      square[5] = 1;
      table->at(at) += rounded;
      table->at(square) += rounded * rounded;
      return;
    }
    v = Activated(args, v * norm.table.at(at) + Second(norm.table, at));
  });
}

Status ExpectNorm(Device& device, const Norm& norm, bool with_table = true) {
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  NormArgs args = norm.args;
  args.layout = &norm.layout;
  OOC_ASSIGN(args.tile, rig.NewTile(norm.tile, Operand::kX, norm.layout));
  OOC_ASSIGN(void* const table, rig.NewTile(norm.table, Operand::kPrologue, norm.table_layout));
  const int64_t first = OffsetIn(norm.table_layout, norm.first);
  args.table = static_cast<char*>(table) + first * SizeOf(norm.table_layout.dtype);
  if (!with_table) args.table = nullptr;
  OOC_TRY(device.Norm(stream, args));
  Tensor wanted = norm.tile, wanted_table = norm.table;
  Expect(norm, &wanted, &wanted_table);
  OOC_ASSIGN(const Tensor seen, rig.Download(Operand::kX, norm.layout, args.tile));
  OOC_ASSIGN(const Tensor seen_table, rig.Download(Operand::kPrologue, norm.table_layout, table));
  std::string difference = FirstDifference(seen, wanted);
  OOC_EXPECT(difference.empty(), "%s: %s", norm.Describe().c_str(), difference.c_str());
  difference = FirstDifference(seen_table, wanted_table);
  OOC_EXPECT(difference.empty(), "%s: table: %s", norm.Describe().c_str(), difference.c_str());
  return {};
}

Status AppliesToParts(Device& device) {
  Random random(91);
  for (int i = 0; i < kPasses; ++i) {
    const DType dtype = kAllDTypes[i % 4];
    Norm norm = MakeNorm(device, NormPass::kApply, dtype, RandomDims(random), random);
    for (double& value : norm.table.values) value = std::ldexp(value, -1);
    norm.args.activation = std::array{Activation::kIdentity, Activation::kRelu,
                                      Activation::kClippedRelu}[static_cast<size_t>(i / 4 % 3)];
    norm.args.parameter = 2.0;
    OOC_TRY(ExpectNorm(device, norm));
  }
  return {};
}

// A pass that only activates reads no table; here scales of 1 and shifts of 0 stand for that.
Status ActivatesAlone(Device& device) {
  Random random(92);
  for (const DType dtype : kAllDTypes) {
    Norm norm = MakeNorm(device, NormPass::kApply, dtype, RandomDims(random), random);
    norm.args.activation = Activation::kRelu;
    ForEach({}, norm.table.dims, [&](const Dims& i) { norm.table.at(i) = i[5] == 0 ? 1.0 : 0.0; });
    OOC_TRY(ExpectNorm(device, norm, false));
  }
  return {};
}

// What lies around the part is no number, and in no sum.
void PoisonAround(Norm* norm) {
  ForEach({}, norm->tile.dims, [&](const Dims& i) {
    if (!norm->InPart(i)) norm->tile.at(i) = std::numeric_limits<double>::quiet_NaN();
  });
}

Status SumsUpParts(Device& device) {
  Random random(93);
  for (int i = 0; i < kPasses; ++i) {
    const DType dtype = kAllDTypes[i % 4];
    Norm norm = MakeNorm(device, NormPass::kSum, dtype, RandomDims(random), random);
    PoisonAround(&norm);
    OOC_TRY(ExpectNorm(device, norm));
  }
  return {};
}

// Rows longer than what a thread, or a block of them, takes at once.
Status SumsUpManyElements(Device& device) {
  Random random(94);
  for (const Dims& shape : {Dims{1, 1, 2, 3, 5, 701}, Dims{2, 1, 35, 1, 17, 23}}) {
    for (int i = 0; i < 4; ++i) {
      Norm norm = MakeNorm(device, NormPass::kSum, DType::kFloat32, shape, random);
      norm.args.begin = {};
      norm.args.end = shape;
      OOC_TRY(ExpectNorm(device, norm));
    }
  }
  return {};
}

// A tile of float32 that leaves as a narrower type is summed up as that has it.
Status SumsAreOfWhatIsWritten(Device& device) {
  Random random(95);
  for (const DType rounded : {DType::kFloat16, DType::kBFloat16}) {
    for (int i = 0; i < 6; ++i) {
      Norm norm = MakeNorm(device, NormPass::kSum, DType::kFloat32, RandomDims(random), random);
      for (double& value : norm.tile.values) value = value * 2 + 2049.0;
      norm.args.rounded = rounded;
      OOC_TRY(ExpectNorm(device, norm));
    }
  }
  return {};
}

constexpr Case kCases[] = {{"normalize_parts", AppliesToParts},
                           {"normalize_activates_alone", ActivatesAlone},
                           {"sum_parts", SumsUpParts},
                           {"sum_many_elements", SumsUpManyElements},
                           {"sum_what_is_written", SumsAreOfWhatIsWritten}};

}  // namespace

std::span<const Case> NormCases() { return kCases; }

}  // namespace oocdnn::testing
