// The list of functions that the drop-in gets from us: each family adds its own.
#pragma once

#include <vector>

#include "abi/cudnn.h"
#include "abi/dropin.h"

namespace oocdnn::shim {

using Served = std::vector<OocServed>;

// Without a GPU: descriptors of our own, and the CPU computes.
void ServeHandles(Served* served);
void ServeTensors(Served* served);
void ServeFilters(Served* served);
void ServeConvolutionDescriptors(Served* served);
void ServeOperationDescriptors(Served* served);  // activation, operations on tensors
void ServePooling(Served* served);
void ServeConvolutions(Served* served);
void ServeAlgorithms(Served* served);
void ServeElementwise(Served* served);
void ServeNormalization(Served* served);  // softmax, batch normalization
void ServeGraphs(Served* served);

// With a GPU: what stands before the real library's functions.
void ServeInterceptedGraphs(Served* served);
void ServeInterceptedPlans(Served* served);
void ServeInterceptedConvolutions(Served* served);
void ServeInterceptedAlgorithms(Served* served);
void ServeLargeTensors(Served* served);
void ServeOthers(Served* served);

}  // namespace oocdnn::shim

// Adds `function` as cuDNN's `name`. The compiler compares it with the declaration of that name.
#define OOC_SERVE(served, name, function) \
  (served)->push_back(                    \
      {#name, reinterpret_cast<OocFunction>(static_cast<decltype(&::name)>(function))})
