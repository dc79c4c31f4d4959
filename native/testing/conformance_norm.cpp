// The passes of a normalisation: on parts of tiles of every layout and type, by tables that hold
// more than the tile's channels. Whole numbers and powers of two, so that all of it is exact.
#include <algorithm>
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
  // The first number of an element's entry.
  [[nodiscard]] Dims EntryAt(const Dims& i) const {
    return {first[0] + i[0], first[1] + i[1], first[2] + i[2], 0, 0, 0};
  }
};

double NumberOf(const Tensor& table, Dims at, int64_t number) {
  at[5] = number;
  return table.at(at);
}

// Fills a table with statistics of whole numbers, as passes over earlier tiles leave them.
void FillEntries(Tensor* table, Random& random) {
  const Dims& dims = table->dims;
  ForEach({}, {dims[0], dims[1], dims[2], 1, 1, 1}, [&](Dims i) {
    const auto count = static_cast<double>(random.Between(0, 3));
    const auto mean = static_cast<double>(count > 0 ? random.Between(-2, 2) : 0);
    const auto deviations = static_cast<double>(count > 1 ? random.Between(0, 4) : 0);
    const double sum = count * mean;
    for (const double number : {sum, deviations + sum * mean, count, mean, deviations}) {
      table->at(i) = number;
      ++i[5];
    }
  });
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
  Dims dims{1, 1, 1, 1, 1, norm.args.Numbers()};
  for (size_t d = 0; d < 3; ++d) {
    norm.first[d] = random.Between(0, 2);
    dims[d] = norm.first[d] + shape[d] + random.Between(0, 2);
  }
  norm.table_layout = PlainLayout(norm.args.TableType(), dims);
  norm.args.step = {dims[1] * dims[2], dims[2], 1};
  norm.tile = Integers(shape, random);
  norm.table = Integers(dims, random);
  if (pass == NormPass::kSum) FillEntries(&norm.table, random);
  norm.args.layout = nullptr;  // of another object, once this one is returned
  return norm;
}

double Activated(const NormArgs& args, double v) {
  if (args.activation == Activation::kRelu) return v < 0 ? 0 : v;
  if (args.activation != Activation::kClippedRelu) return v;
  return std::fmin(v < 0 ? 0 : v, args.parameter);
}

// Scales, shifts and activates the part.
void Expect(const Norm& norm, Tensor* tile) {
  const NormArgs& args = norm.args;
  ForEach(args.begin, args.end, [&](const Dims& i) {
    double& v = tile->at(i);
    v = Activated(args, v * NumberOf(norm.table, norm.EntryAt(i), 0) +
                            NumberOf(norm.table, norm.EntryAt(i), 1));
  });
}

// Two passes: sums first, then deviations from the mean.
void ExpectSums(const Norm& norm, Tensor* table) {
  const NormArgs& args = norm.args;
  Dims channels_end = args.end;
  for (size_t d = 3; d < 6; ++d) channels_end[d] = args.begin[d] + 1;
  ForEach(args.begin, channels_end, [&](const Dims& channel) {
    Dims end = args.end;
    for (size_t d = 0; d < 3; ++d) end[d] = channel[d] + 1;
    const auto for_values = [&](const auto& fn) {
      ForEach(channel, end, [&](const Dims& i) {
        fn(static_cast<long double>(Rounded(args.rounded, norm.tile.at(i))));
      });
    };
    const auto before = [&](int64_t number) {
      return static_cast<long double>(NumberOf(norm.table, norm.EntryAt(channel), number));
    };
    long double sum = before(kSumOf), squares = before(kSquaresOf), count = before(kCountOf);
    for_values([&](long double v) {
      sum += v;
      squares += v * v;
      ++count;
    });
    const long double mean = sum / count, apart = before(kMeanOf) - mean;
    long double deviations = before(kDeviationsOf) + before(kCountOf) * apart * apart;
    for_values([&](long double v) { deviations += (v - mean) * (v - mean); });
    Dims at = norm.EntryAt(channel);
    for (const long double number : {sum, squares, count, mean, deviations}) {
      table->at(at) = static_cast<double>(number);
      ++at[5];
    }
  });
}

// Sums, their squares and counts are exact. Means are rounded, and deviations in proportion to
// themselves.
std::string EntryDifference(const Tensor& seen, const Tensor& wanted, double tolerance) {
  Tensor close = seen;
  ForEach({}, seen.dims, [&](const Dims& i) {
    if (i[5] != kMeanOf && i[5] != kDeviationsOf) return;
    const double least = i[5] == kMeanOf ? 1.0 : 0.0;
    const double away = std::abs(seen.at(i) - wanted.at(i));
    if (away <= tolerance * std::max(std::abs(wanted.at(i)), least)) close.at(i) = wanted.at(i);
  });
  return FirstDifference(close, wanted);
}

// The tile and the table behind `passes` of them.
struct Ran {
  Tensor tile, table;
};

Result<Ran> RunNorm(Device& device, const Norm& norm, bool with_table, int passes = 1) {
  Rig rig(device);
  OOC_ASSIGN(const Stream stream, rig.MainStream());
  NormArgs args = norm.args;
  args.layout = &norm.layout;
  OOC_ASSIGN(args.tile, rig.NewTile(norm.tile, Operand::kX, norm.layout));
  OOC_ASSIGN(void* const table, rig.NewTile(norm.table, Operand::kPrologue, norm.table_layout));
  const int64_t first = OffsetIn(norm.table_layout, norm.first);
  args.table = static_cast<char*>(table) + first * SizeOf(norm.table_layout.dtype);
  if (!with_table) args.table = nullptr;
  for (int i = 0; i < passes; ++i) OOC_TRY(device.Norm(stream, args));
  Ran ran;
  OOC_ASSIGN(ran.tile, rig.Download(Operand::kX, norm.layout, args.tile));
  OOC_ASSIGN(ran.table, rig.Download(Operand::kPrologue, norm.table_layout, table));
  return ran;
}

Status ExpectNorm(Device& device, const Norm& norm, bool with_table = true) {
  OOC_ASSIGN(const Ran ran, RunNorm(device, norm, with_table));
  const bool sums = norm.args.pass == NormPass::kSum;
  Tensor tile = norm.tile, table = norm.table;
  sums ? ExpectSums(norm, &table) : Expect(norm, &tile);
  std::string difference = FirstDifference(ran.tile, tile);
  OOC_EXPECT(difference.empty(), "%s: %s", norm.Describe().c_str(), difference.c_str());
  difference = sums ? EntryDifference(ran.table, table, 1e-12) : FirstDifference(ran.table, table);
  OOC_EXPECT(difference.empty(), "%s: table: %s", norm.Describe().c_str(), difference.c_str());
  return {};
}

// Compares means and deviations after one pass and after two over the same tile, for values whose
// sums are rounded.
Status ExpectDeviations(Device& device, const Norm& norm, double tolerance) {
  Tensor wanted = norm.table;
  ExpectSums(norm, &wanted);
  for (const int passes : {1, 2}) {
    OOC_ASSIGN(const Ran ran, RunNorm(device, norm, true, passes));
    Tensor seen = wanted;
    ForEach({}, wanted.dims, [&](const Dims& i) {
      const double own = ran.table.at(i);
      if (i[5] == kMeanOf) seen.at(i) = own;
      if (i[5] == kDeviationsOf) seen.at(i) = own / passes;
    });
    const std::string difference = EntryDifference(seen, wanted, tolerance);
    OOC_EXPECT(difference.empty(), "%s, %d passes: %s", norm.Describe().c_str(), passes,
               difference.c_str());
  }
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

// Large means with small deviations, which sums of squares lose.
Status KeepsDeviations(Device& device) {
  Random random(96);
  for (const double offset : {1e6, -1e8, 1e12}) {
    for (const Dims& shape : {Dims{2, 1, 3, 1, 7, 9}, Dims{1, 2, 17, 2, 3, 401}}) {
      Norm norm = MakeNorm(device, NormPass::kSum, DType::kFloat64, shape, random);
      for (double& value : norm.tile.values) value += offset;
      std::fill(norm.table.values.begin(), norm.table.values.end(), 0.0);
      OOC_TRY(ExpectDeviations(device, norm, 1e-12));
    }
  }
  return {};
}

// A single outlier, first in its channel or not, does not cancel the other deviations.
Status KeepsDeviationsBesideOne(Device& device) {
  Random random(97);
  for (const bool first : {true, false}) {
    Norm norm = MakeNorm(device, NormPass::kSum, DType::kFloat64, {1, 1, 2, 1, 40, 50}, random);
    norm.args.begin = {};
    norm.args.end = norm.layout.shape;
    for (double& value : norm.tile.values) value += 1e8;
    std::fill(norm.table.values.begin(), norm.table.values.end(), 0.0);
    for (int64_t c = 0; c < 2; ++c) {
      norm.tile.at({0, 0, c, 0, first ? 0 : 23, first ? 0 : 31}) = 0.0;
    }
    OOC_TRY(ExpectDeviations(device, norm, 1e-11));
  }
  return {};
}

// Equal elements have no deviations, also where neither they nor their sums are whole.
Status EqualElementsDoNotDeviate(Device& device) {
  Random random(98);
  for (const DType dtype : kAllDTypes) {
    for (const double value : {0.1, -1e4 / 3, 65504.0}) {
      Norm norm = MakeNorm(device, NormPass::kSum, dtype, {1, 2, 19, 2, 5, 67}, random);
      const double equal = Rounded(dtype, value);
      std::fill(norm.tile.values.begin(), norm.tile.values.end(), equal);
      std::fill(norm.table.values.begin(), norm.table.values.end(), 0.0);
      OOC_ASSIGN(const Ran ran, RunNorm(device, norm, true, 3));
      bool exact = true;
      ForEach(norm.args.begin, norm.args.end, [&](const Dims& i) {
        const Dims at = norm.EntryAt(i);
        exact = exact && NumberOf(ran.table, at, kMeanOf) == equal &&
                NumberOf(ran.table, at, kDeviationsOf) == 0.0;
      });
      OOC_EXPECT(exact, "%s: elements of %g deviate from their mean", norm.Describe().c_str(),
                 equal);
    }
  }
  return {};
}

constexpr Case kCases[] = {{"normalize_parts", AppliesToParts},
                           {"normalize_activates_alone", ActivatesAlone},
                           {"sum_parts", SumsUpParts},
                           {"sum_many_elements", SumsUpManyElements},
                           {"sum_what_is_written", SumsAreOfWhatIsWritten},
                           {"sum_deviations", KeepsDeviations},
                           {"sum_deviations_beside_one", KeepsDeviationsBesideOne},
                           {"sum_equal_elements", EqualElementsDoNotDeviate}};

}  // namespace

std::span<const Case> NormCases() { return kCases; }

}  // namespace oocdnn::testing
