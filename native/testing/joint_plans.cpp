// C function: gradients that come along with another, under plans drawn or searched, compared bit
// by bit with those that calls of their own give in one tile. All numbers are small and whole, so
// that every sum is exact.
#include <algorithm>
#include <cstring>
#include <vector>

#include "testing/device_spec.hpp"
#include "testing/export.hpp"
#include "testing/random_plans.hpp"

namespace oocdnn {
namespace {

using testing::Dice;
using testing::Runner;

// Windows over y, of maxima, whose gradients are whole numbers.
void DrawPool(Dice* dice, Problem* problem) {
  Pool& pool = problem->pool;
  pool.mode = PoolMode::kMax;
  pool.ceil = dice->Between(0, 1) == 1;
  for (int s = 3 - problem->rank; s < 3; ++s) {
    pool.window[s] = dice->Between(1, std::min<int64_t>(problem->shape.out[s], 3));
    pool.stride[s] = dice->Between(1, 3);
    pool.pad_before[s] = dice->Between(0, pool.window[s] - 1);
    pool.pad_after[s] = dice->Between(0, pool.window[s] - 1);
  }
}

// Of images that are cut into more tiles than a pool's strides leave of few rows.
void Widen(Dice* dice, ConvShape* shape, int rank) {
  for (int s = 3 - rank; s < 3; ++s) {
    shape->in[s] += dice->Between(0, 12);
    shape->out[s] = OutputExtent(shape->in[s], shape->pad_before[s], shape->pad_after[s],
                                 shape->filter[s], shape->stride[s], shape->dilation[s]);
  }
}

void Lay(Problem* problem) {
  SetPooled(problem);
  for (int i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (problem->Has(operand)) problem->stride[i] = DenseStrides(problem->DimsOf(operand));
  }
}

Problem JointProblem(Dice* dice) {
  Problem problem;
  do {
    problem = testing::RandomProblem(dice);
    const bool data = dice->Between(0, 3) > 0;
    problem.direction = data ? Direction::kBackwardData : Direction::kBackwardFilter;
    Widen(dice, &problem.shape, problem.rank);
    if (dice->Between(0, 2) > 0) DrawPool(dice, &problem);
    problem.clips = dice->Between(0, 1) == 1;
    problem.also.dw = data && dice->Between(0, 3) > 0;
    problem.also.db = !problem.also.dw || dice->Between(0, 3) > 0;
    Lay(&problem);
  } while (!Validate(problem).ok());  // too much padding for db
  return problem;
}

// The problem whose only output is that sum.
Problem Alone(const Problem& joint, Operand sum) {
  Problem problem = joint;
  problem.also = {};
  if (sum == Operand::kDw) problem.direction = Direction::kBackwardFilter;
  if (sum == Operand::kDb) problem.direction = Direction::kBackwardBias;
  Lay(&problem);
  return problem;
}

class Data {
 public:
  Data(const Problem& problem, Dice* dice) : joint_(problem) {
    for (int i = 0; i < kOperands; ++i) {
      const auto operand = static_cast<Operand>(i);
      if (!problem.Has(operand)) continue;
      bytes_[i].resize(static_cast<size_t>(problem.BytesOf(operand)));
      if (operand == Operand::kSaved) {
        for (char& byte : bytes_[i]) byte = static_cast<char>(dice->Between(0, 255));
        continue;
      }
      for (size_t at = 0; at < bytes_[i].size(); at += sizeof(float)) {
        const auto value = static_cast<float>(dice->Between(-3, 3));
        std::memcpy(&bytes_[i][at], &value, sizeof value);
      }
    }
  }

  OperandViews All() {
    OperandViews tensors;
    for (int i = 0; i < kOperands; ++i) tensors[i] = ViewOf(i, joint_.stride[i]);
    return tensors;
  }

  // What a call of its own for that sum reads and writes.
  OperandViews Of(const Problem& alone, const Part& part) {
    OperandViews tensors = All();
    for (const Operand place : {Operand::kX, Operand::kW, Operand::kY, Operand::kBias}) {
      Operand from = part.Of(place);
      if (from == Operand::kY) from = Operand::kZ;  // where nothing is restored dy is dz
      tensors[Index(place)] = ViewOf(Index(from), alone.stride[Index(place)]);
    }
    return tensors;
  }

  // The sum's bytes, and others in their place that no result has.
  std::vector<char> Take(Operand sum) {
    std::vector<char> taken(bytes_[Index(sum)].size(), 0x77);
    std::swap(taken, bytes_[Index(sum)]);
    return taken;
  }

 private:
  TensorView ViewOf(int operand, const Dims& stride) {
    const DType dtype = joint_.DTypeOf(static_cast<Operand>(operand));
    return {bytes_[operand].data(), dtype, stride};
  }

  const Problem& joint_;
  std::array<std::vector<char>, kOperands> bytes_;
};

// What the planner chooses within one to four times the least bytes that it knows of.
Result<Candidate> Searched(const Problem& problem, const Device& device, Dice* dice) {
  PlanRequest request;
  request.problem = problem;
  request.engines = device.engines();
  request.budget = kNoLimit;
  const Candidate least = LeastCandidate(request, 0, Profile{});
  request.budget = dice->Between(1, 4) * EstimateBytes(request, least);
  OOC_ASSIGN(const PlanSearch search, Search(request, Profile{}));
  return search.ranked.front().candidate;
}

// On the first engine that does not refuse, by the plan that is made for it.
template <class Plan>
Status RunOnAny(Runner* runner, const Problem& problem, const OperandViews& tensors,
                const Plan& plan) {
  const std::vector<EngineInfo>& engines = runner->device.engines();
  Status ran = Error(Code::kUnsupported, "no engine");
  for (size_t i = 0; i < engines.size() && ran.code() == Code::kUnsupported; ++i) {
    Candidate candidate = plan(problem, engines[i]);
    candidate.engine = static_cast<int>(i);
    ran = runner->Run(problem, candidate, tensors);
  }
  return ran;
}

Status RunTogether(Runner* runner, const Problem& joint, const OperandViews& tensors, Dice* dice) {
  if (dice->Between(0, 3) == 0) {
    OOC_ASSIGN(const Candidate plan, Searched(joint, runner->device, dice));
    return runner->Run(joint, plan, tensors);
  }
  const auto random = [&](const Problem& problem, const EngineInfo& engine) {
    return testing::RandomCandidate(problem, engine, dice);
  };
  return RunOnAny(runner, joint, tensors, random);
}

Status RunOne(Runner* runner, Dice* dice, int64_t* mismatches, std::string* first) {
  const Problem joint = JointProblem(dice);
  Data data(joint, dice);
  Status ran = RunTogether(runner, joint, data.All(), dice);
  if (ran.code() == Code::kUnsupported) return {};  // the engine that was planned for refuses
  OOC_TRY(std::move(ran));
  for (const Part& part : PartsOf(joint)) {
    const std::vector<char> found = data.Take(part.sum);
    const Problem alone = Alone(joint, part.sum);
    OOC_TRY(RunOnAny(runner, alone, data.Of(alone, part), testing::OneTile));
    if (data.Take(part.sum) == found || (*mismatches)++ > 0) continue;
    *first = Format("%s of %s", Name(part.sum, joint.direction), ToString(joint).c_str());
  }
  return {};
}

Status RunJoint(const char* spec, uint64_t seed, int64_t count, int64_t* mismatches, int64_t* steps,
                int64_t* hazards, std::string* first) {
  OOC_ASSIGN(testing::SpecDevice stack, testing::MakeDevice(spec));
  Runner runner(*stack.device);
  OOC_TRY(runner.loop.Init());
  Dice dice(seed);
  for (int64_t i = 0; i < count; ++i) {
    OOC_TRY(RunOne(&runner, &dice, mismatches, first));
  }
  *steps = runner.steps;
  if (stack.check == nullptr) return {};
  const std::vector<std::string> reports = CheckReports(*stack.check);
  *hazards = static_cast<int64_t>(reports.size());
  if (!reports.empty()) *first = reports.front();
  return {};
}

}  // namespace
}  // namespace oocdnn

// As oocdnn_testing_schedules, of `count` passes that yield dx and dw, db or both, or dw and db.
OOC_EXPORT int oocdnn_testing_joint(const char* spec, uint64_t seed, int64_t count,
                                    int64_t* mismatches, int64_t* steps, int64_t* hazards,
                                    char* message, int64_t capacity) {
  *mismatches = *steps = *hazards = 0;
  std::string first;
  const oocdnn::Status status =
      oocdnn::RunJoint(spec, seed, count, mismatches, steps, hazards, &first);
  if (!status.ok()) return oocdnn::testing::Answer(status, message, capacity);
  oocdnn::testing::CopyText(first, message, capacity);
  return 0;
}
