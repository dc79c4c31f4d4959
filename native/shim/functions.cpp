// The one entry of the drop-in: which functions the core serves.
#include "abi/dropin.h"
#include "shim/real.hpp"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

Served EmulatedFunctions() {
  Served served;
  ServeHandles(&served);
  ServeTensors(&served);
  ServeFilters(&served);
  ServeConvolutionDescriptors(&served);
  ServeOperationDescriptors(&served);
  ServePooling(&served);
  ServeConvolutions(&served);
  ServeAlgorithms(&served);
  ServeElementwise(&served);
  ServeNormalization(&served);
  ServeGraphs(&served);
  return served;
}

// Before functions that the real library has; what it lacks, clients must not find in us.
Served InterceptedFunctions(OocFunction (*real)(const char* name)) {
  FillReal(real);
  Served served;
  ServeInterceptedGraphs(&served);
  ServeInterceptedPlans(&served);
  ServeInterceptedConvolutions(&served);
  ServeInterceptedAlgorithms(&served);
  ServeLargeTensors(&served);
  ServeOthers(&served);
  std::erase_if(served, [real](const OocServed& one) { return real(one.name) == nullptr; });
  return served;
}

Served AllFunctions(OocFunction (*real)(const char* name)) {
  Served served = real != nullptr ? InterceptedFunctions(real) : EmulatedFunctions();
  served.push_back({nullptr, nullptr});
  return served;
}

}  // namespace
}  // namespace oocdnn::shim

__attribute__((visibility("default"))) const OocServed* oocdnn_cudnn_functions(
    OocFunction (*real)(const char* name)) {
  using namespace oocdnn::shim;  // NOLINT(google-build-using-namespace): its one way out
  try {
    // Never destroyed: the drop-in holds it for as long as the process lives.
    static const auto* const served = new Served(AllFunctions(real));
    return served->data();
  } catch (...) {
    return nullptr;
  }
}
