// C door: random problems under random plans, run through the tile loop and compared bit by bit
// with the same problem in one tile. With a check device around the device it also counts hazards.
//
// The plans are drawn, not searched, so that they are stranger than any planner's: any axis cut
// anywhere, any legal loop order, one to three slots per operand.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "exec/tile_loop.hpp"
#include "testing/device_spec.hpp"
#include "testing/door.hpp"

namespace oocdnn {
namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  float Real() { return static_cast<float>(Between(-1000, 1000)) * 0.0137f; }

 private:
  std::mt19937_64 engine_;
};

Problem RandomProblem(Dice* dice) {
  Problem problem;
  problem.direction = static_cast<Direction>(dice->Between(0, kDirections - 1));
  problem.rank = static_cast<int>(dice->Between(1, 3));
  ConvShape& shape = problem.shape;
  shape.n = dice->Between(1, 3);
  shape.g = dice->Between(1, 2);
  shape.k = dice->Between(1, 5);
  shape.c = dice->Between(1, 5);
  for (int s = 3 - problem.rank; s < 3; ++s) {
    shape.filter[s] = dice->Between(1, 3);
    shape.stride[s] = dice->Between(1, 2);
    shape.dilation[s] = dice->Between(1, 2);
    shape.pad_before[s] = dice->Between(0, 2);
    shape.pad_after[s] = dice->Between(0, 2);
    const int64_t least =
        std::max<int64_t>(1, shape.Reach(s) - shape.pad_before[s] - shape.pad_after[s]);
    shape.in[s] = dice->Between(least, std::max<int64_t>(least, 9));
    shape.out[s] = OutputExtent(shape.in[s], shape.pad_before[s], shape.pad_after[s],
                                shape.filter[s], shape.stride[s], shape.dilation[s]);
  }
  for (int i = 0; i < kOperands; ++i) {
    problem.stride[i] = DenseStrides(problem.DimsOf(static_cast<Operand>(i)));
  }
  return problem;
}

// Sums over several axes keep the order of one piece only where every reduction axis outside a cut
// one is taken one element at a time. `invariant` speaks of N, K, D, H and W alone; that a split of
// C (of K in backward data) keeps the bits too is a promise of the direct engine.
void KeepOrderOfSums(const Problem& problem, bool direct, AxisArray* length) {
  const AxisArray extent = ExtentsOf(problem);
  const Axis channels = problem.direction == Direction::kForward ? Axis::kC : Axis::kK;
  if (!direct && IsReduction(problem, channels)) {
    (*length)[Index(channels)] = extent[Index(channels)];
  }
  bool cut_inside = false;
  for (int i = kAxes - 1; i >= 0; --i) {
    if (!IsReduction(problem, static_cast<Axis>(i))) continue;
    if (cut_inside) (*length)[i] = 1;
    cut_inside = cut_inside || (*length)[i] < extent[i];
  }
}

LoopOrder RandomOrder(const Problem& problem, Dice* dice) {
  LoopOrder order = DefaultOrder(problem);
  const auto reductions = std::find_if(order.begin(), order.end(),
                                       [&](Axis axis) { return IsReduction(problem, axis); });
  for (auto i = order.begin(); i != reductions; ++i) {
    std::swap(*i, *(i + dice->Between(0, reductions - i - 1)));
  }
  return order;
}

Candidate RandomCandidate(const Problem& problem, const EngineInfo& engine, Dice* dice) {
  Candidate candidate;
  AxisArray length = ExtentsOf(problem);
  for (int64_t& axis : length) {
    if (dice->Between(0, 2) != 0) axis = dice->Between(1, std::max<int64_t>(axis, 1));
  }
  KeepOrderOfSums(problem, engine.name == "direct", &length);
  candidate.tiling = MakeTiling(problem, length, !engine.symmetric_padding);
  const auto axis = static_cast<Axis>(dice->Between(0, kAxes - 1));
  const int64_t usual = candidate.tiling.length[Index(axis)];
  candidate.tiling = Tapered(problem, candidate.tiling, {axis, dice->Between(0, usual)});
  candidate.order = RandomOrder(problem, dice);
  for (int i = 0; i < kOperands; ++i) {
    candidate.depths[i] =
        problem.Uses(static_cast<Operand>(i)) ? static_cast<int>(dice->Between(1, 3)) : 0;
  }
  return candidate;
}

// The operands of one problem in plain memory.
class Data {
 public:
  Data(const Problem& problem, Dice* dice) : problem_(problem) {
    for (int i = 0; i < kOperands; ++i) {
      const auto operand = static_cast<Operand>(i);
      if (!problem.Uses(operand)) continue;
      values_[i].resize(static_cast<size_t>(problem.BytesOf(operand)) / sizeof(float));
      for (float& value : values_[i]) value = dice->Real();
    }
  }
  HostTensors Tensors(std::vector<float>* output) {
    HostTensors tensors;
    for (int i = 0; i < kOperands; ++i) {
      const bool out = i == Index(problem_.output());
      tensors[i].view = {out ? output->data() : values_[i].data(), problem_.dtype,
                         problem_.stride[i]};
    }
    return tensors;
  }
  [[nodiscard]] size_t OutputSize() const { return values_[Index(problem_.output())].size(); }

 private:
  const Problem& problem_;
  std::array<std::vector<float>, kOperands> values_;
};

struct Runner {
  Device& device;
  TileLoop loop;
  Arena arena;
  Slabs slabs;
  int64_t steps = 0;

  explicit Runner(Device& on) : device(on), loop(on), arena(on), slabs(on, 1 << 20) {}

  Status Run(const PlanRequest& request, const Candidate& candidate, const HostTensors& tensors) {
    OOC_ASSIGN(const Booking booking, Book(device, request, candidate, int64_t{1} << 30));
    OOC_TRY(arena.Reserve(booking.bytes));
    RunStats stats;
    OOC_TRY(loop.Run(booking, tensors, arena, slabs, nullptr, &stats));
    steps += stats.tiles;
    return {};
  }
};

Status RunSchedules(const char* spec, uint64_t seed, int64_t count, int64_t* mismatches,
                    int64_t* steps, int64_t* hazards, std::string* first) {
  OOC_ASSIGN(testing::SpecDevice stack, testing::MakeDevice(spec));
  Runner runner(*stack.device);
  OOC_TRY(runner.loop.Init());
  Dice dice(seed);
  for (int64_t i = 0; i < count; ++i) {
    PlanRequest request;
    request.problem = RandomProblem(&dice);
    request.budget = int64_t{1} << 30;
    request.engines = stack.device->engines();
    const EngineInfo& engine = request.engines[0];
    Data data(request.problem, &dice);
    Candidate whole;
    whole.tiling = WholeTiling(request.problem, !engine.symmetric_padding);
    whole.order = DefaultOrder(request.problem);
    for (int o = 0; o < kOperands; ++o) {
      whole.depths[o] = request.problem.Uses(static_cast<Operand>(o)) ? 1 : 0;
    }
    Candidate tiled = RandomCandidate(request.problem, engine, &dice);
    std::vector<float> expected(data.OutputSize()), result(data.OutputSize(), -77.0f);
    OOC_TRY(runner.Run(request, whole, data.Tensors(&expected)).With(ToString(request.problem)));
    Status ran = runner.Run(request, tiled, data.Tensors(&result));
    if (ran.code() == Code::kUnsupported && tiled.tiling.tapered()) {
      tiled.tiling.taper = {};  // what all tiles use would have two layouts
      ran = runner.Run(request, tiled, data.Tensors(&result));
    }
    OOC_TRY(std::move(ran).With(Describe(request, tiled)));
    const bool same =
        std::memcmp(expected.data(), result.data(), result.size() * sizeof(float)) == 0;
    if (!same && (*mismatches)++ == 0) {
      *first = ToString(request.problem) + " " + Describe(request, tiled);
    }
  }
  *steps = runner.steps;
  if (stack.check != nullptr) {
    const std::vector<std::string> reports = CheckReports(*stack.check);
    *hazards = static_cast<int64_t>(reports.size());
    if (!reports.empty()) *first = reports.front();
  }
  return {};
}

}  // namespace
}  // namespace oocdnn

// Runs `count` random plans on the device that `spec` names. Counts results that differ in a bit
// from the one-tile result, tiles run, and hazards; `message` gets the first of either, or the
// error's text.
OOC_DOOR int oocdnn_testing_schedules(const char* spec, uint64_t seed, int64_t count,
                                      int64_t* mismatches, int64_t* steps, int64_t* hazards,
                                      char* message, int64_t capacity) {
  *mismatches = *steps = *hazards = 0;
  std::string first;
  const oocdnn::Status status =
      oocdnn::RunSchedules(spec, seed, count, mismatches, steps, hazards, &first);
  if (!status.ok()) return oocdnn::testing::Answer(status, message, capacity);
  oocdnn::testing::CopyText(first, message, capacity);
  return 0;
}
