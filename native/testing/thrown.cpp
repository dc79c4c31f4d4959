// C functions: what is thrown while work is in flight becomes a status, and ends that work first.
#include <new>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "exec/host_worker.hpp"
#include "heap/attempts.hpp"
#include "library/context.hpp"
#include "testing/conformance_rig.hpp"
#include "testing/export.hpp"

namespace oocdnn::testing {
namespace {

Status InJob() {
  HostWorker worker;
  OOC_ASSIGN(const HostWorker::Ticket thrown,
             worker.Submit([]() -> Status { throw std::bad_alloc(); }));
  const Status status = worker.Wait(thrown);
  OOC_EXPECT(status.code() == Code::kOutOfMemory, "a job that throws ends with '%s'",
             status.message().c_str());
  OOC_ASSIGN(const HostWorker::Ticket next, worker.Submit([] { return Status(); }));
  return worker.Wait(next);
}

// Behind a slow wire the drains of the first tiles have yet to write when the fifth step throws.
Status InCall() {
  OOC_ASSIGN(const Problem problem, ParseProblem("conv2d:fwd x1x4x256x256 w4x4x3x3 pad1"));
  std::vector<float> x(4 * 256 * 256, 1.0f), w(4 * 4 * 9, 1.0f), y(x.size(), -77.0f);
  OperandViews tensors;
  for (const auto& [operand, values] :
       {std::pair{Operand::kX, &x}, {Operand::kW, &w}, {Operand::kY, &y}}) {
    const int i = Index(operand);
    tensors[i] = {values->data(), problem.dtype, problem.stride[i]};
  }
  ContextOptions options;
  options.device.device = "cpu";
  options.device.engine = "direct";
  options.device.link_gb_per_s = 0.02;
  options.budget = "256KiB";
  options.profile = "none";
  OOC_ASSIGN(auto context, Context::Create(options));
  const Status status = context->Run(problem, tensors, nullptr, [](int64_t done, int64_t) {
    if (done == 4) throw std::runtime_error("thrown");
    return true;
  });
  OOC_EXPECT(status.code() == Code::kInternal, "a call that throws ends with '%s'",
             status.message().c_str());
  const std::vector<float> then = y;
  context.reset();
  OOC_EXPECT(then == y, "the call wrote to y after it had ended");
  return {};
}

// Attempt 0 throws, and the others succeed or do not.
Status InAttempt() {
  const auto attempts = [](bool succeed) {
    return heap::FirstOf(
        8, 60.0, [](int64_t) { return true; },
        [succeed](int64_t number, heap::Deadline*) -> Result<bool> {
          if (number == 0) throw std::bad_alloc();
          return succeed;
        });
  };
  OOC_ASSIGN(const std::optional<int64_t> found, attempts(true));
  OOC_EXPECT(found && *found > 0, "no attempt succeeded beside one that threw");
  const Status status = attempts(false).status();
  OOC_EXPECT(status.code() == Code::kOutOfMemory, "attempts of which one throws end with '%s'",
             status.message().c_str());
  return {};
}

}  // namespace
}  // namespace oocdnn::testing

OOC_EXPORT int oocdnn_testing_thrown_in_job(char* message, int64_t capacity) {
  return oocdnn::testing::Answer(oocdnn::testing::InJob(), message, capacity);
}

OOC_EXPORT int oocdnn_testing_thrown_in_call(char* message, int64_t capacity) {
  return oocdnn::testing::Answer(oocdnn::testing::InCall(), message, capacity);
}

OOC_EXPORT int oocdnn_testing_thrown_in_attempt(char* message, int64_t capacity) {
  return oocdnn::testing::Answer(oocdnn::testing::InAttempt(), message, capacity);
}
