// Functions that compute and that are not ours where there is a GPU: the real library's, which
// would crash on what no GPU reads, and would not know what a large tensor is. Of a function's
// pointers to data those are looked at that stand behind their descriptor.
#include "shim/answer.hpp"
#include "shim/gpu_facts.hpp"
#include "shim/large_tensor.hpp"
#include "shim/real.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

// Goes through the arguments of a call, in their order.
class Arguments {
 public:
  // Why the real library must not have the call; null where it may.
  [[nodiscard]] const char* reason() const { return reason_; }

  void See(cudnnTensorDescriptor_t tensor) {
    behind_descriptor_ = true;
    if (IsLarge(tensor)) {
      reason_ = "a tensor of 2^31 elements or more, which only convolutions take";
    }
  }
  void See(cudnnFilterDescriptor_t) { behind_descriptor_ = true; }
  void See(cudnnConvolutionDescriptor_t) { behind_descriptor_ = true; }
  void See(const void* data) {
    if (behind_descriptor_ && data != nullptr && TierOf(data) == Tier::kPageable) {
      reason_ = "an operand lies in pageable host memory, which only convolutions take: pin it";
    }
    behind_descriptor_ = false;
  }
  void See(void* data) { See(static_cast<const void*>(data)); }
  template <class Other>
  void See(Other) {
    behind_descriptor_ = false;
  }

 private:
  bool behind_descriptor_ = false;
  const char* reason_ = nullptr;
};

template <auto kReal, class Function>
struct ForwardedCall;
template <auto kReal, class... Types>
struct ForwardedCall<kReal, cudnnStatus_t (*)(Types...)> {
  static cudnnStatus_t Call(Types... values) {
    Arguments arguments;
    (arguments.See(values), ...);
    if (arguments.reason() != nullptr) {
      return Ours(Refuse(CUDNN_STATUS_NOT_SUPPORTED, "%s", arguments.reason()));
    }
    Passed();
    return (TheReal().*kReal)(values...);
  }
};

}  // namespace

void ServeOthers(Served* served) {
#define OOC_HAND_ON(name) \
  OOC_SERVE(served, name, (ForwardedCall<&Real::name, decltype(&::name)>::Call));
  OOC_OTHER_FUNCTIONS(OOC_HAND_ON)
#undef OOC_HAND_ON
}

}  // namespace oocdnn::shim
