// C functions for the geometry for the tests in Python: problem strings, checks, tiles, schedules
// and the conversions of 16-bit numbers.
//
// Problems, tilings, boxes and steps cross as they are: tests/geometry/core.py mirrors their
// fields, and oocdnn_testing_sizes gives their sizes. A function that can fail returns the
// Status code and writes its text to `message` (cut to `capacity`, always terminated).
#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "base/dtype.hpp"
#include "geom/overlap.hpp"
#include "geom/own_rows.hpp"
#include "geom/placement.hpp"
#include "geom/problem.hpp"
#include "geom/schedule.hpp"
#include "geom/tiling.hpp"

#define OOC_EXPORT extern "C" __attribute__((visibility("default")))

namespace oocdnn {
namespace {

static_assert(std::is_standard_layout_v<Problem> && std::is_standard_layout_v<Tiling> &&
              std::is_standard_layout_v<Step>);

void Copy(const std::string& text, char* to, int64_t capacity) {
  if (capacity <= 0) return;
  const size_t length = std::min(text.size(), static_cast<size_t>(capacity - 1));
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

int Answer(const Status& status, char* message, int64_t capacity) {
  Copy(status.message(), message, capacity);
  return static_cast<int>(status.code());
}

LoopOrder OrderOf(const int32_t* axes) {
  LoopOrder order{};
  for (int i = 0; i < kAxes; ++i) order[i] = static_cast<Axis>(axes[i]);
  return order;
}

}  // namespace

// Bytes of Problem, Tiling, Box and Step.
OOC_EXPORT void oocdnn_testing_sizes(int64_t* bytes) {
  bytes[0] = sizeof(Problem);
  bytes[1] = sizeof(Tiling);
  bytes[2] = sizeof(Box);
  bytes[3] = sizeof(Step);
}

// `text` has `length` bytes and may hold any of them.
OOC_EXPORT int oocdnn_testing_parse_problem(const char* text, int64_t length, Problem* problem,
                                            char* message, int64_t capacity) {
  Result<Problem> parsed = ParseProblem(std::string(text, static_cast<size_t>(length)));
  if (parsed.ok()) *problem = parsed.value();
  return Answer(parsed.status(), message, capacity);
}

OOC_EXPORT void oocdnn_testing_problem_text(const Problem* problem, char* text, int64_t capacity) {
  Copy(ToString(*problem), text, capacity);
}

OOC_EXPORT int oocdnn_testing_parse_placement(const char* text, int64_t length, int32_t* places,
                                              char* message, int64_t capacity) {
  Result<Placement> parsed = ParsePlacement(std::string(text, static_cast<size_t>(length)));
  if (parsed.ok()) {
    for (int i = 0; i < kOperands; ++i) places[i] = static_cast<int>(parsed.value().tiers[i]);
  }
  return Answer(parsed.status(), message, capacity);
}

OOC_EXPORT void oocdnn_testing_placement_text(const int32_t* places, char* text, int64_t capacity) {
  Placement placement;
  for (int i = 0; i < kOperands; ++i) placement.tiers[i] = static_cast<Tier>(places[i]);
  Copy(ToString(placement), text, capacity);
}

OOC_EXPORT int oocdnn_testing_validate(const Problem* problem, char* message, int64_t capacity) {
  return Answer(Validate(*problem), message, capacity);
}

OOC_EXPORT int oocdnn_testing_output_operand(const Problem* problem) {
  return Index(problem->output());
}

OOC_EXPORT int oocdnn_testing_uses(const Problem* problem, int operand) {
  return problem->Uses(static_cast<Operand>(operand)) ? 1 : 0;
}

OOC_EXPORT int oocdnn_testing_stays(const Problem* problem, int operand) {
  return problem->Stays(static_cast<Operand>(operand)) ? 1 : 0;
}

OOC_EXPORT int oocdnn_testing_writes(const Problem* problem, int operand) {
  return problem->Writes(static_cast<Operand>(operand)) ? 1 : 0;
}

OOC_EXPORT void oocdnn_testing_set_pooled(Problem* problem) { SetPooled(problem); }

OOC_EXPORT void oocdnn_testing_saving(const Problem* problem, int* what, int* bits) {
  const Saving saving = problem->saving();
  *what = static_cast<int>(saving.what);
  *bits = saving.bits;
}

OOC_EXPORT void oocdnn_testing_dims(const Problem* problem, int operand, int64_t* dims) {
  const Dims found = problem->DimsOf(static_cast<Operand>(operand));
  std::copy(found.begin(), found.end(), dims);
}

OOC_EXPORT void oocdnn_testing_strides(const int64_t* dims, int channels_last, int64_t* strides) {
  Dims shape{};
  std::copy(dims, dims + 6, shape.begin());
  const Dims found = channels_last != 0 ? ChannelsLastStrides(shape) : DenseStrides(shape);
  std::copy(found.begin(), found.end(), strides);
}

OOC_EXPORT int64_t oocdnn_testing_output_extent(int64_t in, int64_t before, int64_t after,
                                                int64_t filter, int64_t stride, int64_t dilation) {
  return OutputExtent(in, before, after, filter, stride, dilation);
}

OOC_EXPORT void oocdnn_testing_make_tiling(const Problem* problem, const int64_t* length,
                                           int padding_as_data, Tiling* tiling) {
  AxisArray wanted{};
  std::copy(length, length + kAxes, wanted.begin());
  *tiling = MakeTiling(*problem, wanted, padding_as_data != 0);
}

// The tiles of each axis.
OOC_EXPORT void oocdnn_testing_counts(const Tiling* tiling, int64_t* counts) {
  for (int i = 0; i < kAxes; ++i) counts[i] = tiling->Count(static_cast<Axis>(i));
}

// Gives the tiling a taper.
OOC_EXPORT void oocdnn_testing_taper(const Problem* problem, int axis, int64_t length,
                                     Tiling* tiling) {
  *tiling = Tapered(*problem, *tiling, {static_cast<Axis>(axis), length});
}

OOC_EXPORT void oocdnn_testing_tile_shape(const Problem* problem, const Tiling* tiling,
                                          int is_short, ConvShape* shape) {
  *shape = TileShape(*problem, *tiling, is_short != 0);
}

OOC_EXPORT void oocdnn_testing_region(const Problem* problem, const Tiling* tiling, int operand,
                                      const int64_t* index, Box* box) {
  TileIndex tile{};
  std::copy(index, index + kAxes, tile.begin());
  *box = RegionOf(*problem, *tiling, static_cast<Operand>(operand), tile);
}

OOC_EXPORT void oocdnn_testing_own_rows(const Problem* problem, const Tiling* tiling,
                                        const int64_t* index, Box* box) {
  TileIndex tile{};
  std::copy(index, index + kAxes, tile.begin());
  *box = OwnRowsOf(*problem, *tiling, tile);
}

OOC_EXPORT int oocdnn_testing_moves(const Problem* problem, int operand, int axis) {
  return Moves(*problem, static_cast<Operand>(operand), static_cast<Axis>(axis)) ? 1 : 0;
}

OOC_EXPORT int oocdnn_testing_is_reduction(const Problem* problem, int axis) {
  return IsReduction(*problem, static_cast<Axis>(axis)) ? 1 : 0;
}

OOC_EXPORT int oocdnn_testing_is_legal(const Problem* problem, const Tiling* tiling,
                                       const int32_t* order) {
  return IsLegal(*problem, *tiling, OrderOf(order)) ? 1 : 0;
}

OOC_EXPORT void oocdnn_testing_default_order(const Problem* problem, int32_t* order) {
  const LoopOrder found = DefaultOrder(*problem);
  for (int i = 0; i < kAxes; ++i) order[i] = Index(found[i]);
}

// Writes the first `capacity` steps and returns how many there are in all.
OOC_EXPORT int64_t oocdnn_testing_schedule(const Problem* problem, const Tiling* tiling,
                                           const int32_t* order, const int32_t* depths, Step* steps,
                                           int64_t capacity) {
  Depths rings{};
  std::copy(depths, depths + kOperands, rings.begin());
  Schedule schedule(*problem, *tiling, OrderOf(order), rings);
  int64_t count = 0;
  while (const Step* const step = schedule.Next()) {
    if (count < capacity) steps[count] = *step;
    ++count;
  }
  return count;
}

// A box is its address, the bytes of an element, six extents and six strides in bytes.
OOC_EXPORT int oocdnn_testing_shares_bytes(const int64_t* first, const int64_t* second) {
  const auto box = [](const int64_t* from) {
    StridedBox made{from[0], {}, {}, from[1]};
    std::copy(from + 2, from + 8, made.dims.begin());
    std::copy(from + 8, from + 14, made.stride.begin());
    return made;
  };
  return SharesBytes(box(first), box(second)) ? 1 : 0;
}

// `dtype` is 2 (f16) or 3 (bf16).
OOC_EXPORT void oocdnn_testing_widen(int dtype, const uint16_t* from, float* to, int64_t count) {
  const bool half = static_cast<DType>(dtype) == DType::kFloat16;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = half ? ToFloat(Float16{from[i]}) : ToFloat(BFloat16{from[i]});
  }
}

OOC_EXPORT void oocdnn_testing_narrow(int dtype, const float* from, uint16_t* to, int64_t count) {
  const bool half = static_cast<DType>(dtype) == DType::kFloat16;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = half ? ToFloat16(from[i]).bits : ToBFloat16(from[i]).bits;
  }
}

}  // namespace oocdnn
