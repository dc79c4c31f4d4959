// The legacy problems that are taken because the real library's workspace for them is too large:
// decided when a client asks for the workspace, and kept until it executes.
#pragma once

#include "shim/legacy_read.hpp"

namespace oocdnn::shim {

// What a client executes, before it is known whether it is ours.
struct LegacyChoice {
  cudnnHandle_t handle;
  Direction direction;
  LegacyOperands operands;
  int algorithm;
  void* workspace;
  size_t bytes;
};

// Where the problem is taken with this algorithm and its real workspace, sets that to ours.
void TakeWorkspace(const ConvolutionCall& problem, int algorithm, size_t* workspace);

// Whether TakeWorkspace took it; whether it took anything at all, which costs nothing to ask.
bool LegacyTaken(const ConvolutionCall& problem, int algorithm);
bool AnyLegacyTaken();

}  // namespace oocdnn::shim
