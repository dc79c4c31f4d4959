// How a strided copy is best done, with the numbers of each way.
//
// Rates on an H200 (PCIe 5): a copy engine moves rows of 896 bytes and more at 53 to 56 GB/s, those
// of 256 at 45 (a kernel: 37), a kernel over pinned memory whole arrays at 51 to 53 GB/s. A call
// that reads every other row of 224 bytes took 10.9 ms by an engine and 15.6 by a kernel. So an
// engine goes first wherever it can do all in few calls; it also leaves the multiprocessors to the
// convolution.
#include <algorithm>
#include <bit>
#include <cstdlib>

#include "base/checked.hpp"
#include "device/cuda/copy_plan.hpp"
#include "device/cuda/driver.hpp"

namespace oocdnn::cuda {
namespace {

constexpr int64_t kLeastRow = 192;                // bytes of a row worth a copy engine
constexpr int64_t kLeastCall = int64_t{1} << 20;  // bytes worth one more call of it
constexpr int kHostThreads = 1024, kDeviceThreads = 256;
constexpr int kHostRowBlocks = 16;        // enough for the wire; the others are for computing
constexpr int kHostTransposeBlocks = 32;  // these wait for one another's halves
constexpr int kTransposeInFlight = 4;     // reads of a thread; with 1 they come at a quarter's rate
constexpr int64_t kLeastAcross = 4;       // bits of a block across the wire's rows
constexpr int kDeviceBlocks = 8;          // per multiprocessor
constexpr int64_t kBlockBytes = 16384;    // of a transposed block, on the side of the wire
constexpr int64_t kSharedBytes = 49152;   // what every GPU grants without being asked

int64_t CeilLog2(int64_t n) { return std::bit_width(static_cast<uint64_t>(n - 1)); }

// Whether `dim` can be the rows (or planes) of an engine's call above strides `from` and `to`.
bool FitsAsRows(const PlanDim& dim, int64_t width, int64_t max_pitch) {
  return dim.from >= width && dim.to >= width && dim.from <= max_pitch && dim.to <= max_pitch;
}

bool FitsAsPlanes(const PlanDim& dim, const EngineCopy& copy) {
  return dim.from % copy.from_pitch == 0 && dim.to % copy.to_pitch == 0 &&
         dim.from >= copy.rows * copy.from_pitch && dim.to >= copy.rows * copy.to_pitch;
}

// The calls that do the whole copy; width 0 where an engine cannot.
EngineCopy EngineCopyOf(const StridedCopy& copy, const CopyLimits& limits) {
  EngineCopy engine;
  const int64_t size = SizeOf(copy.from_type);
  if (copy.from_type != copy.to_type) return engine;
  size_t next = 0;
  engine.width = size;
  if (!copy.dim.empty() && copy.dim[0].from == size && copy.dim[0].to == size) {
    engine.width = size * copy.dim[next++].extent;
  }
  engine.from_pitch = engine.to_pitch = engine.width;
  if (next < copy.dim.size() && FitsAsRows(copy.dim[next], engine.width, limits.max_pitch)) {
    engine.rows = copy.dim[next].extent;
    engine.from_pitch = copy.dim[next].from;
    engine.to_pitch = copy.dim[next].to;
    ++next;
  }
  engine.from_height = engine.to_height = engine.rows;
  if (next < copy.dim.size() && engine.rows > 1 && FitsAsPlanes(copy.dim[next], engine)) {
    engine.planes = copy.dim[next].extent;
    engine.from_height = copy.dim[next].from / engine.from_pitch;
    engine.to_height = copy.dim[next].to / engine.to_pitch;
    ++next;
  }
  engine.outer.assign(copy.dim.begin() + static_cast<std::ptrdiff_t>(next), copy.dim.end());
  return engine;
}

bool EngineIsBest(const EngineCopy& engine, Tier tier) {
  if (engine.width == 0) return false;
  const bool one_row = engine.rows == 1 && engine.planes == 1;
  if (one_row && engine.Calls() == 1) return true;
  if (tier == Tier::kDevice || engine.width < kLeastRow) return false;
  return engine.Calls() == 1 || Mul(engine.width, Mul(engine.rows, engine.planes)) >= kLeastCall;
}

// The elements that one access can move: the most that fit 16 bytes on both sides and that divide
// all that has to be divided.
int VectorOf(const StridedCopy& copy) {
  const int64_t from = SizeOf(copy.from_type), to = SizeOf(copy.to_type);
  if (copy.dim[0].from != from || copy.dim[0].to != to) return 1;
  const auto fits = [&](int64_t vector) {
    const int64_t from_bytes = vector * from, to_bytes = vector * to;
    if (std::max(from_bytes, to_bytes) > 16 || copy.dim[0].extent % vector != 0) return false;
    if (copy.from % static_cast<uint64_t>(from_bytes) != 0) return false;
    if (copy.to % static_cast<uint64_t>(to_bytes) != 0) return false;
    return std::all_of(copy.dim.begin() + 1, copy.dim.end(), [&](const PlanDim& dim) {
      return dim.from % from_bytes == 0 && dim.to % to_bytes == 0;
    });
  };
  int vector = 8;
  while (vector > 1 && !fits(vector)) vector /= 2;
  return vector;
}

CopyPlan RowsPlan(const StridedCopy& copy, Tier tier, const CopyLimits& limits) {
  CopyPlan plan;
  plan.method = Method::kRows;
  RowsArgs& rows = plan.rows;
  rows.from = PointerTo(copy.from);
  rows.to = PointerTo(copy.to);
  rows.from_type = static_cast<int>(copy.from_type);
  rows.to_type = static_cast<int>(copy.to_type);
  rows.vector = copy.dim.empty() ? 1 : VectorOf(copy);
  rows.dims = static_cast<int>(copy.dim.size());
  for (int d = 0; d < rows.dims; ++d) {
    const PlanDim& dim = copy.dim[static_cast<size_t>(d)];
    const int64_t vector = d == 0 ? rows.vector : 1;
    rows.dim[d] = {MakeDivisor(dim.extent / vector), dim.from * vector, dim.to * vector};
  }
  rows.count = static_cast<unsigned>(copy.Elements() / rows.vector);
  plan.threads = tier == Tier::kPinned ? kHostThreads : kDeviceThreads;
  const int64_t most =
      tier == Tier::kPinned ? kHostRowBlocks : int64_t{limits.multiprocessors} * kDeviceBlocks;
  plan.blocks = std::min(CeilDiv(rows.count, plan.threads), most);
  return plan;
}

// How long a block is along the dimension that the wire's side has side by side: the whole extent
// where the block still keeps kLeastAcross of the other, so that rows of host memory are not cut
// where they are not aligned; else half of the bits.
int64_t WireBits(int64_t most, int64_t bits, Tier tier) {
  return tier == Tier::kPinned && most + kLeastAcross <= bits ? most : std::min(most, bits / 2);
}

// The shape of the blocks that pass through shared memory.
void ShapeBlocks(const StridedCopy& copy, Tier tier, Side wire, CopyPlan* plan) {
  TransposeArgs& args = plan->transpose;
  const int64_t to_size = SizeOf(copy.to_type);
  const int64_t read_most = CeilLog2(args.read_extent), write_most = CeilLog2(args.write_extent);
  const int64_t wire_most = wire == Side::kFrom ? read_most : write_most;
  const int64_t other_most = wire == Side::kFrom ? write_most : read_most;
  for (int64_t bits = CeilLog2(kBlockBytes / ElementBytes(copy, wire));; --bits) {
    const int64_t other = std::min(other_most, bits - WireBits(wire_most, bits, tier));
    const int64_t along = std::min(wire_most, bits - other);
    args.read_bits = static_cast<int>(wire == Side::kFrom ? along : other);
    args.write_bits = static_cast<int>(wire == Side::kFrom ? other : along);
    args.pitch = (1 << args.write_bits) + 1;
    plan->shared_bytes = static_cast<int>((args.pitch << args.read_bits) * to_size);
    if (plan->shared_bytes <= kSharedBytes) return;
  }
}

// Threads such that each has kTransposeInFlight reads to make, as far as that goes.
int TransposeThreads(const TransposeArgs& args) {
  const int vectors = (1 << (args.read_bits + args.write_bits)) / args.read_vector;
  return std::clamp(vectors / kTransposeInFlight, 32, kHostThreads);
}

// The most elements, of 16 bytes together at most, that one access can move on a side where `dense`
// says that they are side by side: all else has to divide.
int SideVector(int64_t size, uint64_t base, int64_t extent, bool dense,
               const std::vector<int64_t>& strides) {
  for (int64_t bytes = 16; dense && bytes > size; bytes /= 2) {
    const bool divides = std::all_of(strides.begin(), strides.end(),
                                     [&](int64_t stride) { return stride % bytes == 0; });
    if (divides && base % static_cast<uint64_t>(bytes) == 0 && extent * size % bytes == 0) {
      return static_cast<int>(bytes / size);
    }
  }
  return 1;
}

CopyPlan TransposePlan(const StridedCopy& copy, size_t read, size_t write, Tier tier, Side wire,
                       const CopyLimits& limits) {
  CopyPlan plan;
  plan.method = Method::kTranspose;
  TransposeArgs& args = plan.transpose;
  const PlanDim &r = copy.dim[read], &w = copy.dim[write];
  args.from = PointerTo(copy.from);
  args.to = PointerTo(copy.to);
  args.from_type = static_cast<int>(copy.from_type);
  args.to_type = static_cast<int>(copy.to_type);
  args.read_extent = static_cast<unsigned>(r.extent);
  args.write_extent = static_cast<unsigned>(w.extent);
  args.read_from = r.from;
  args.read_to = r.to;
  args.write_from = w.from;
  args.write_to = w.to;
  ShapeBlocks(copy, tier, wire, &plan);
  const int64_t read_blocks = CeilDiv(r.extent, int64_t{1} << args.read_bits);
  const int64_t write_blocks = CeilDiv(w.extent, int64_t{1} << args.write_bits);
  args.read_blocks = MakeDivisor(read_blocks);
  args.write_blocks = MakeDivisor(write_blocks);
  int64_t count = read_blocks * write_blocks;
  std::vector<int64_t> from_strides{w.from}, to_strides{r.to};
  for (size_t d = 0; d < copy.dim.size(); ++d) {
    if (d == read || d == write) continue;
    const PlanDim& dim = copy.dim[d];
    args.dim[args.dims++] = {MakeDivisor(dim.extent), dim.from, dim.to};
    from_strides.push_back(dim.from);
    to_strides.push_back(dim.to);
    count *= dim.extent;
  }
  args.count = static_cast<unsigned>(count);
  const int64_t from_size = SizeOf(copy.from_type), to_size = SizeOf(copy.to_type);
  args.read_vector = SideVector(from_size, copy.from, r.extent, r.from == from_size, from_strides);
  args.write_vector = SideVector(to_size, copy.to, w.extent, w.to == to_size, to_strides);
  plan.threads = tier == Tier::kPinned ? TransposeThreads(args) : kDeviceThreads;
  plan.blocks =
      std::min(count, tier == Tier::kPinned ? int64_t{kHostTransposeBlocks}
                                            : int64_t{limits.multiprocessors} * kDeviceBlocks);
  return plan;
}

}  // namespace

int64_t EngineCopy::Calls() const {
  int64_t calls = 1;
  for (const PlanDim& dim : outer) calls = Mul(calls, dim.extent);
  return calls;
}

// Round-up method: multiplier = floor(2^32 * (2^shift - divisor) / divisor) + 1.
Divisor MakeDivisor(int64_t divisor) {
  const auto shift = static_cast<unsigned>(CeilLog2(std::max<int64_t>(divisor, 1)));
  const auto d = static_cast<uint64_t>(std::max<int64_t>(divisor, 1));
  const uint64_t multiplier = ((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1;
  return {static_cast<unsigned>(d), static_cast<unsigned>(multiplier), shift};
}

bool GainsByRelay(const StridedCopy& copy, Side wire, const CopyLimits& limits) {
  return !EngineIsBest(EngineCopyOf(copy, limits), Tier::kPinned) &&
         EngineCrosses(copy, wire, limits);
}

bool EngineCrosses(const StridedCopy& copy, Side wire, const CopyLimits& limits) {
  const Relay relay = RelayOf(copy, wire, 0);
  const StridedCopy& over_wire = wire == Side::kFrom ? relay.first : relay.second;
  return EngineIsBest(EngineCopyOf(over_wire, limits), Tier::kPinned);
}

CopyPlan PlanCopy(const StridedCopy& copy, Tier tier, Side wire, const CopyLimits& limits) {
  CopyPlan plan;
  if (copy.Elements() == 0) return plan;
  plan.engine = EngineCopyOf(copy, limits);
  if (EngineIsBest(plan.engine, tier)) {
    plan.method = Method::kEngine;
    return plan;
  }
  const auto nearest = [&](auto stride) {
    return static_cast<size_t>(std::min_element(copy.dim.begin(), copy.dim.end(),
                                                [&](const PlanDim& a, const PlanDim& b) {
                                                  return std::abs(stride(a)) < std::abs(stride(b));
                                                }) -
                               copy.dim.begin());
  };
  const size_t read = nearest([](const PlanDim& dim) { return dim.from; });
  const size_t write = nearest([](const PlanDim& dim) { return dim.to; });
  const bool bytes = copy.from_type == DType::kByte;  // lie alike on both sides
  if (read == write || bytes) return RowsPlan(copy, tier, limits);
  return TransposePlan(copy, read, write, tier, wire, limits);
}

}  // namespace oocdnn::cuda
