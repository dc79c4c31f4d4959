// The n-th allocation of host memory fails, for many n, on whatever thread it is made.
#include <new>

#include "testing/clients/allocations.hpp"
#include "testing/exercise/convolution.hpp"
#include "testing/exercise/exercise.hpp"

namespace oocdnn::exercise {
namespace {

using clients::until_failure;

constexpr int64_t kDense = 32;    // every n up to here, then farther and farther apart
constexpr int kConvolutions = 4;  // one of each direction

// A team of threads, and engines that are ours.
OwnedContext OpenTeam() {
  oocdnn_options options = SmallOptions();
  options.engine = "direct";
  options.threads = 3;
  return Open(options);
}

// The n-th allocation from the context's creation on fails. False where there are not so many.
bool Fails(const Convolution& convolution, oocdnn_status (Convolution::*run)(oocdnn_context*) const,
           int64_t nth) {
  OwnedContext context;
  oocdnn_status status = OOCDNN_OUT_OF_MEMORY;
  until_failure = nth;
  try {
    context = OpenTeam();
    if (context != nullptr) status = (convolution.*run)(context.get());
  } catch (const std::bad_alloc&) {
    status = OOCDNN_OUT_OF_MEMORY;  // for one of the arrays here
  }
  const bool failed = until_failure.exchange(0) <= 0;
  if (status != OOCDNN_OK && status != OOCDNN_OUT_OF_MEMORY) {
    Fail("%s: allocation %lld: status %d", convolution.Text().c_str(), static_cast<long long>(nth),
         status);
  }
  if (context != nullptr && (convolution.*run)(context.get()) != OOCDNN_OK) {
    Fail("%s: after allocation %lld: %s", convolution.Text().c_str(), static_cast<long long>(nth),
         oocdnn_last_error());
  }
  return failed;
}

}  // namespace

void Memory() {
  for (unsigned seed = 0; seed < kConvolutions; ++seed) {
    const Convolution convolution(seed);
    for (const auto run : {&Convolution::Run, &Convolution::RunInFiles}) {
      for (int64_t nth = 1; Fails(convolution, run, nth); nth += 1 + nth / kDense) {
      }
    }
  }
}

}  // namespace oocdnn::exercise
