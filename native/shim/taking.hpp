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

// By where the operands are: why this call is taken, or null. Those that the call does not use are
// not looked at.
const char* WhyTakenHere(const ConvolutionCall& call);

// The workspace with which Run books nothing else for this problem, its operands on the device;
// nothing where it cannot be run so.
std::optional<int64_t> ScratchBytes(const ConvolutionCall& call);

}  // namespace oocdnn::shim
