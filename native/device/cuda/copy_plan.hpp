// What a copy is made of, and how it is best done: arithmetic only, no device.
//
// A transfer becomes a strided copy of its valid elements and boxes of zeros. A strided copy is
// done by a copy engine (rows of bytes in up to three dimensions a call), or by a kernel of ours.
#pragma once

#include <cstdint>
#include <vector>

#include "device/cuda/kernel_args.h"
#include "device/device.hpp"

namespace oocdnn::cuda {

// One dimension of a strided copy; strides in bytes, of any sign.
struct PlanDim {
  int64_t extent = 1, from = 0, to = 0;
  bool operator==(const PlanDim&) const = default;
};

struct StridedCopy {
  uint64_t from = 0, to = 0;  // addresses of the first element
  DType from_type = DType::kFloat32, to_type = DType::kFloat32;
  std::vector<PlanDim> dim;
  [[nodiscard]] int64_t Elements() const;
  [[nodiscard]] bool operator==(const StridedCopy&) const = default;
};

enum class Toward { kTile, kView };

// The copy of a transfer's valid elements. Empty extents mean that there is nothing to do.
StridedCopy CopyOf(const Transfer& transfer, Toward toward);
StridedCopy CopyOf(const TileMove& move);

// The parts of the tile that a fetch fills with zeros, as arguments of ooc_zero; boxes may be 0.
ZeroArgs ZerosOf(const Transfer& transfer);

// Leaves out dimensions of extent 1, joins those that continue one another on both sides, and
// puts what is nearest on the side `by` first.
enum class Side { kFrom, kTo };
void Simplify(StridedCopy* copy, Side by);

// Bytes of an element, and of all elements, on one side.
int64_t ElementBytes(const StridedCopy& copy, Side side);
int64_t BytesOf(const StridedCopy& copy, Side side);

// The lowest address and the address behind the highest byte on one side.
struct AddressRange {
  uint64_t begin = 0, end = 0;
};
AddressRange RangeOf(const StridedCopy& copy, Side side);

struct CopyLimits {
  int64_t max_pitch = INT32_MAX;
  int multiprocessors = 1;
};

// One call of a copy engine: `rows` rows of `width` bytes in each of `planes` planes.
struct EngineCopy {
  int64_t width = 0, rows = 1, planes = 1;
  int64_t from_pitch = 0, to_pitch = 0;    // bytes between rows
  int64_t from_height = 1, to_height = 1;  // rows between planes
  std::vector<PlanDim> outer;              // one call for each of their indices
  [[nodiscard]] int64_t Calls() const;
};

enum class Method { kNothing, kEngine, kRows, kTranspose };

struct CopyPlan {
  Method method = Method::kNothing;
  EngineCopy engine;
  RowsArgs rows{};
  TransposeArgs transpose{};
  int64_t blocks = 0;
  int threads = 0, shared_bytes = 0;
};

// Plans a simplified copy of less than 2^31 elements. `tier` is that of the side that is no tile
// (kDevice for a copy between tiles), `wire` which side that is.
CopyPlan PlanCopy(const StridedCopy& copy, Tier tier, Side wire, const CopyLimits& limits);

// Cuts a copy in two along its longest dimension and returns the second: for those of 2^31 elements
// or more.
constexpr int64_t kMostElements = INT32_MAX;
StridedCopy CutInHalf(StridedCopy* copy);

// A copy over the wire as two, one after the other: through memory of the device at `middle`, where
// the elements lie side by side as they do on the wire's side and in its type. So a copy engine
// does the wire, and a kernel that waits for no wire the rest.
struct Relay {
  StridedCopy first, second;
};
Relay RelayOf(const StridedCopy& copy, Side wire, uint64_t middle);

// True if a copy engine is the best method for the step of a relay that crosses the wire.
bool EngineCrosses(const StridedCopy& copy, Side wire, const CopyLimits& limits);

// Whether PlanCopy would send a kernel over the wire although a copy engine could do that part.
bool GainsByRelay(const StridedCopy& copy, Side wire, const CopyLimits& limits);

// Cuts a simplified copy into pieces of at most `bytes` on the wire's side, such that rows on both
// sides stay as long as that allows.
std::vector<StridedCopy> PiecesOf(const StridedCopy& copy, Side wire, int64_t bytes);

// See kernel_args.h; divisor >= 1.
Divisor MakeDivisor(int64_t divisor);

}  // namespace oocdnn::cuda
