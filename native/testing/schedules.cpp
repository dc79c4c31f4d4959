// C function: random problems under random plans, run through the tile loop and compared bit by bit
// with the same problem in one tile. With a check device around the device it also counts hazards.
#include <cmath>
#include <cstring>
#include <vector>

#include "model/price/orders.hpp"
#include "testing/device_spec.hpp"
#include "testing/export.hpp"
#include "testing/random_plans.hpp"

namespace oocdnn {
namespace {

using testing::Dice;

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
  OperandViews Tensors(std::vector<float>* output) {
    OperandViews tensors;
    for (int i = 0; i < kOperands; ++i) {
      const bool out = i == Index(problem_.output());
      tensors[i] = {out ? output->data() : values_[i].data(), problem_.dtype, problem_.stride[i]};
    }
    return tensors;
  }
  // Whole numbers, whose sums are exact in any order.
  void Round() {
    for (std::vector<float>& values : values_) {
      for (float& value : values) value = std::round(3 * value) + 0.0F;
    }
  }
  [[nodiscard]] size_t OutputSize() const { return values_[Index(problem_.output())].size(); }

 private:
  const Problem& problem_;
  std::array<std::vector<float>, kOperands> values_;
};

Status RunSchedules(const char* spec, uint64_t seed, int64_t count, int64_t* mismatches,
                    int64_t* steps, int64_t* hazards, std::string* first) {
  OOC_ASSIGN(testing::SpecDevice stack, testing::MakeDevice(spec));
  testing::Runner runner(*stack.device);
  OOC_TRY(runner.loop.Init());
  const EngineInfo engine = stack.device->engines()[0];
  Dice dice(seed);
  for (int64_t i = 0; i < count; ++i) {
    const Problem problem = testing::RandomProblem(&dice);
    Data data(problem, &dice);
    const Candidate tiled = testing::RandomCandidate(problem, engine, &dice);
    if (!KeepsSummationOrder(problem, tiled.tiling)) data.Round();
    std::vector<float> expected(data.OutputSize()), result(data.OutputSize(), -77.0f);
    OOC_TRY(runner.Run(problem, testing::OneTile(problem, engine), data.Tensors(&expected)));
    OOC_TRY(runner.Run(problem, tiled, data.Tensors(&result)));
    const bool same =
        std::memcmp(expected.data(), result.data(), result.size() * sizeof(float)) == 0;
    if (!same && (*mismatches)++ == 0) *first = ToString(problem);
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
OOC_EXPORT int oocdnn_testing_schedules(const char* spec, uint64_t seed, int64_t count,
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
