// Which calls run through us where there is a GPU and a real library.
#pragma once

#include <optional>

#include "shim/convolve.hpp"

namespace oocdnn::shim {

// The device bytes that one of our calls may book beside the client's tensors.
int64_t BudgetBytes();

// By shapes alone: why the problem is taken, or null. `workspace` is the real library's for it,
// below 0 where it has no plan.
const char* WhyTaken(const ConvolutionCall& call, int64_t workspace);

// Says once in a process, and not before it is needed, that a problem is taken at plan time, with
// the real library's workspace for it (below 0: it has none) and ours.
void Announce(const ConvolutionCall& call, int64_t workspace, int64_t ours);

// By where the operands are: why this call is taken, or null. Those that the call does not use are
// not looked at.
const char* WhyTakenHere(const ConvolutionCall& call);
// Whether an operand is where no GPU reads it, so that the real library can do nothing.
bool OnlyWeReach(const ConvolutionCall& call);

// Runs a call that is taken. Where the real library could run it too, which `must` denies, and we
// cannot, nothing. `must` becomes true once what there was in the operands may be gone.
std::optional<cudnnStatus_t> RunTaken(ConvolutionCall call, const char* why, bool* must);

// The workspace with which Run books nothing else for this problem, its operands on the device;
// nothing where it cannot be run so. Where layers share a workspace, it is for the share that this
// one has now.
std::optional<int64_t> ScratchBytes(ConvolutionCall call);

// The end of a client's call: what body(&must) answers, or nothing where the real library shall run
// it. Nothing thrown leaves it: where `must` was set, that is the answer.
template <class Body>
std::optional<cudnnStatus_t> Decided(const Body& body) noexcept {
  bool must = false;
  std::optional<cudnnStatus_t> answer;
  const cudnnStatus_t failure = Serve([&] {
    answer = body(&must);
    return CUDNN_STATUS_SUCCESS;
  });
  if (failure != CUDNN_STATUS_SUCCESS && must) answer = failure;
  answer ? static_cast<void>(Ours(*answer)) : Passed();
  return answer;
}

}  // namespace oocdnn::shim
