// A small tile pipeline, as the tile loop would write it: fetch, run and drain on three streams
// with two slots. For tests of the wrapping devices, which can leave one of its waits out.
#pragma once

#include "testing/conformance_conv.hpp"

namespace oocdnn::testing {

enum class Omit : int {
  kNothing = 0,
  kRunWaitsForFetch = 1,
  kDrainWaitsForRun = 2,
  kFetchWaitsForRun = 3,  // a slot of x is written while it may still be read
  kRunWaitsForDrain = 4,  // a slot of y is written while it may still be read
};

constexpr int kPipelineSteps = 6;

// Convolves six images one by one and compares the result with the reference (unless a wait is
// left out). `spans`, if not null, has room for one span per step and fetch.
Status RunPipeline(Device& device, Omit omit, Span* spans = nullptr);

}  // namespace oocdnn::testing
