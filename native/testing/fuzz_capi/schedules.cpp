// The functions of training steps.
#include <limits>

#include "testing/fuzz_capi/session.hpp"

namespace oocdnn::fuzz_capi {
namespace {

double DrawSeconds(Random* random) {
  constexpr double kOdd[] = {-1.0, 1e308, 5e-324, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()};
  return random->Chance(1) ? kOdd[random->Below(5)] : 1e-3 * static_cast<double>(random->Below(9));
}

double DrawHost(Random* random) { return random->Chance(50) ? 0.0 : DrawSeconds(random); }

int64_t DrawBytes(Random* random) {
  return random->Chance(1) ? random->Integer() : random->Between(0, 4096);
}

int64_t DrawLimit(Random* random) {
  return random->Chance(1) ? random->Integer() : random->Between(0, 16384);
}

// A step whose arrays have exactly their size, on the heap.
struct Step {
  explicit Step(Random* random);

  std::vector<oocdnn_step_operation> operations;
  std::vector<oocdnn_step_tensor> tensors;
  std::vector<oocdnn_step_recipe> recipes;
  std::vector<int64_t> inputs;
  oocdnn_training_step given{};
};

Step::Step(Random* random) {
  const int64_t forward = random->Between(1, 12);
  for (int64_t i = 0; i < 2 * forward; ++i) {
    operations.push_back(
        {DrawSeconds(random), DrawHost(random), DrawBytes(random), DrawBytes(random)});
  }
  int64_t produced = 0;
  for (auto count = random->Between(0, 12); count > 0; --count) {
    produced = random->Between(produced, forward - 1);
    oocdnn_step_tensor& one = tensors.emplace_back();
    one.bytes = DrawBytes(random);
    one.produced = produced;
    one.last_forward_use = random->Between(produced, forward - 1);
    one.first_use = random->Between(forward, 2 * forward - 1);
    one.last_use = random->Between(one.first_use, 2 * forward - 1);
    one.squeezed_bytes = random->Chance(70) ? -1 : DrawBytes(random);
    one.squeeze_seconds = DrawSeconds(random);
    one.squeeze_host = DrawHost(random);
    one.squeezed_whole = random->Chance(50) ? 1 : 0;
    one.movable = random->Chance(90) ? 1 : 0;
    one.recipes = tensors.size() == 1 ? 0 : random->Between(0, 2);
    for (int64_t i = 0; i < one.recipes; ++i) {
      const auto read = random->Between(0, 2);
      recipes.push_back({DrawSeconds(random), DrawHost(random), DrawBytes(random), read});
      for (int64_t k = 0; k < read; ++k) {
        const auto last = static_cast<int64_t>(tensors.size()) - 2;
        inputs.push_back(random->Chance(1) ? random->Integer() : random->Between(0, last));
      }
    }
    if (random->Chance(1)) one.recipes = random->Integer();
  }
  given = {operations.data(),
           tensors.data(),
           recipes.data(),
           inputs.data(),
           static_cast<int64_t>(operations.size()),
           random->Chance(2) ? random->Integer() : forward,
           static_cast<int64_t>(tensors.size()),
           static_cast<int64_t>(recipes.size()),
           static_cast<int64_t>(inputs.size()),
           random->Chance(2) ? DrawSeconds(random) : 1e6,
           1e6,
           DrawSeconds(random),
           DrawHost(random)};
}

std::vector<int32_t> DrawPolicies(Random* random, size_t count) {
  std::vector<int32_t> policies(count);
  for (int32_t& policy : policies) {
    policy = random->Chance(1) ? random->Int() : static_cast<int32_t>(random->Below(2));
  }
  return policies;
}

void CallSchedule(Random* random, oocdnn_scheduler* scheduler, const Step& step) {
  std::vector<int32_t> policies = DrawPolicies(random, step.tensors.size());
  std::vector<oocdnn_movement> movements(step.tensors.size());
  std::vector<int64_t> bytes_at(step.operations.size());
  std::vector<double> waits(step.tensors.size());
  oocdnn_schedule_totals totals{};
  Now("oocdnn_make_schedule");
  const oocdnn_status status = oocdnn_make_schedule(
      scheduler, DrawLimit(random), random->Chance(2) ? nullptr : policies.data(), &totals,
      random->Chance(50) ? nullptr : movements.data(),
      random->Chance(50) ? nullptr : bytes_at.data(), random->Chance(50) ? nullptr : waits.data());
  if (Answered(status) != OOCDNN_OK) return;
  Expect(totals.waiting >= 0.0 && totals.seconds >= totals.waiting, "less than nothing");
  constexpr double kRounding = 1.0 + 1e-9;
  Expect(totals.late >= 0.0 && kRounding * totals.seconds >= totals.late, "less than nothing");
  for (const int64_t bytes : bytes_at) Expect(bytes <= totals.peak_bytes, "above the peak");
  for (const double seconds : waits) {
    Expect(0.0 <= seconds && seconds <= totals.waiting, "no part of the waiting");
  }
  for (const oocdnn_movement& one : movements) {
    Expect(one.release <= one.fetch && one.fetch <= one.need, "positions out of order");
  }
}

void CallSearch(Random* random, oocdnn_scheduler* scheduler, const Step& step) {
  std::vector<int32_t> policies = DrawPolicies(random, step.tensors.size());
  const int64_t limit = DrawLimit(random);
  oocdnn_schedule_totals before{}, after{};
  if (oocdnn_make_schedule(scheduler, limit, std::vector<int32_t>(policies).data(), &before,
                           nullptr, nullptr, nullptr) != OOCDNN_OK) {
    return;
  }
  const oocdnn_search search{limit, random->Chance(2) ? -1 : random->Between(0, 200),
                             random->Integer(), DrawSeconds(random), 60.0};
  Now("oocdnn_improve_policies");
  const oocdnn_status status = oocdnn_improve_policies(
      scheduler, random->Chance(2) ? nullptr : &search, nullptr, nullptr, policies.data(), &after);
  if (Answered(status) != OOCDNN_OK) return;
  const bool fits = after.peak_bytes <= limit;
  Expect(fits || after.peak_bytes <= before.peak_bytes, "worse than before");
  if (fits && before.peak_bytes <= limit) Expect(after.seconds <= before.seconds, "slower");
}

}  // namespace

void CallSchedules(Random* random) {
  const Step step(random);
  oocdnn_scheduler* scheduler = nullptr;
  Now("oocdnn_create_scheduler");
  const oocdnn_status status =
      oocdnn_create_scheduler(random->Chance(2) ? nullptr : &step.given, &scheduler);
  if (Answered(status) != OOCDNN_OK) return;
  CallSchedule(random, scheduler, step);
  CallSearch(random, scheduler, step);
  oocdnn_destroy_scheduler(scheduler);
}

}  // namespace oocdnn::fuzz_capi
