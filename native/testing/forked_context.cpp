// C function: threads of a forked child that come to the parent's context at the same time.
#include <array>
#include <barrier>
#include <thread>
#include <vector>

#include "library/context.hpp"
#include "testing/child.hpp"
#include "testing/conformance_rig.hpp"
#include "testing/export.hpp"

namespace oocdnn::testing {
namespace {

constexpr int kTogether = 4;

// A sum of ones: each output within the border is 36.
class Call {
 public:
  explicit Call(const Problem& problem)
      : problem_(problem), x_(size_t{4} * 64 * 64, 1.0f), w_(4 * 4 * 9, 1.0f), y_(x_.size()) {
    for (const auto& [operand, values] :
         {std::pair{Operand::kX, &x_}, {Operand::kW, &w_}, {Operand::kY, &y_}}) {
      const int i = Index(operand);
      tensors_[i] = {values->data(), problem.dtype, problem.stride[i]};
    }
  }
  Status Run(Context* context) {
    OOC_TRY(context->Run(problem_, tensors_, nullptr, nullptr));
    OOC_EXPECT(y_[64 * 32 + 32] == 36.0f, "a wrong result");
    return {};
  }

 private:
  const Problem& problem_;
  std::vector<float> x_, w_, y_;
  OperandViews tensors_;
};

Status AtOnce(Context* context, const Problem& problem) {
  std::barrier together(kTogether);
  std::array<Status, kTogether> statuses;
  std::vector<std::thread> threads;
  threads.reserve(kTogether);
  for (Status& status : statuses) {
    threads.emplace_back([&] {
      Call call(problem);
      together.arrive_and_wait();
      status = call.Run(context);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Status& status : statuses) OOC_TRY(std::move(status));
  return {};
}

Status ForkMany(int rounds) {
  OOC_ASSIGN(const Problem problem, ParseProblem("conv2d:fwd x1x4x64x64 w4x4x3x3 pad1"));
  ContextOptions options;
  options.device.device = "cpu";
  options.device.engine = "direct";
  options.budget = "64KiB";
  options.profile = "none";
  OOC_ASSIGN(const auto context, Context::Create(options));
  OOC_TRY(Call(problem).Run(context.get()));
  for (int i = 0; i < rounds; ++i) {
    OOC_TRY(InChild([&] { return AtOnce(context.get(), problem); }));
  }
  return Call(problem).Run(context.get());
}

}  // namespace
}  // namespace oocdnn::testing

OOC_EXPORT int oocdnn_testing_forked_context(int rounds, char* message, int64_t capacity) {
  return oocdnn::testing::Answer(oocdnn::testing::ForkMany(rounds), message, capacity);
}
