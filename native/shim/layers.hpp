// One workspace divided among a client's layers (OOCDNN_WORKSPACE_TOTAL, µ-cuDNN's workspace
// division). A layer is a problem in one direction on one device; those that are alike take turns
// in one share. Calls are from any thread.
#pragma once

#include <optional>

#include "shim/convolve.hpp"

namespace oocdnn::shim {

// What all layers of a device share, and what each may have (OOCDNN_WORKSPACE_LIMIT); nothing where
// it is not set, or, with one warning, cannot be read.
std::optional<int64_t> TotalWorkspace();
std::optional<int64_t> LayerWorkspace();

// The most bytes of workspace for the layer's calls now, as ConvolutionCall has it: its share, or
// before the first division what a single layer may have.
int64_t ShareOf(const ConvolutionCall& call);

// The same for a call that is about to run, its operands on the device, outside of a capture. New
// layers are noted. When the first of them comes again the total is divided among all, by runs of
// each that are timed now, and from then on whenever a new one appears.
int64_t NextShareOf(const ConvolutionCall& call);

}  // namespace oocdnn::shim
