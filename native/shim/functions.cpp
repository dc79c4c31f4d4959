// The one entry of the drop-in: which functions the core serves.
#include "abi/dropin.h"
#include "shim/served.hpp"

namespace oocdnn::shim {
namespace {

Served OwnFunctions() {
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

}  // namespace
}  // namespace oocdnn::shim

__attribute__((visibility("default"))) const OocServed* oocdnn_cudnn_functions(
    OocFunction (*real)(const char* name)) {
  using oocdnn::shim::Served;
  try {
    if (real != nullptr) return nullptr;
    // Kept: the drop-in holds it for as long as the process lives.
    auto* const served = new Served(oocdnn::shim::OwnFunctions());
    served->push_back({nullptr, nullptr});
    return served->data();
  } catch (...) {
    return nullptr;
  }
}
