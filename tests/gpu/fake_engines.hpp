// What the fake cuDNN offers: every kind of engine that cuDNN has.
#pragma once

#include "abi/cudnn_backend.h"

namespace fake {

constexpr int kTensorCore = 1 << CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
constexpr int kStrictNan = 1 << CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
constexpr int64_t kScratch = 640;
// Milliseconds that a run of OOC_FAKE_SLOW_ENGINE takes on events' clock.
constexpr int kSlow = 1 << 20;
// And that the first run of any engine takes longer with OOC_FAKE_COLD.
constexpr int kCold = 40;
// And that so many runs, the first of all, do with OOC_FAKE_WAITED.
// Every other engine takes kBehind longer then.
constexpr int kRising = 8, kWaited = 2, kBehind = 4;
// On any axis of x: above the first no engine is offered, above the second no heuristics are made.
constexpr int64_t kMostExtent = 30000, kMostForHeuristics = 60000;

struct FakeEngine {
  int64_t index;
  int mode;  // of the heuristics that offer it
  unsigned numerical, behavior;
  bool right, makes_plans;
  int64_t workspace;
};
// A tensor core engine is offered for float tensors too, where it means TF32.
constexpr FakeEngine kEngines[] = {
    {3, CUDNN_HEUR_MODE_A, 1 << CUDNN_NUMERICAL_NOTE_FFT, 0, false, true, 0},
    {5, CUDNN_HEUR_MODE_A, 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD, 0, false, true, 0},
    {6, CUDNN_HEUR_MODE_A, 1 << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13, 0, false, true, 0},
    {7, CUDNN_HEUR_MODE_A, 1 << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 0, false, true, 0},
    {8, CUDNN_HEUR_MODE_A, 1 << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 0, false, true, 0},
    {9, CUDNN_HEUR_MODE_A, 1 << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 0, false, true,
     0},
    {10, CUDNN_HEUR_MODE_A, 1 << 12, 0, false, true, 0},
    {11, CUDNN_HEUR_MODE_A, 0, 1 << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, false, true, 0},
    {12, CUDNN_HEUR_MODE_A, kTensorCore, 0, false, false, 0},
    {14, CUDNN_HEUR_MODE_A, kTensorCore | 1 << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 0, false,
     true, int64_t{1} << 50},
    {13, CUDNN_HEUR_MODE_A, kTensorCore, 0, false, true, int64_t{1} << 50},
    {48, CUDNN_HEUR_MODE_A, kTensorCore, 0, true, true, 0},
    {28, CUDNN_HEUR_MODE_A, 0, 0, true, true, kScratch},
    {1, CUDNN_HEUR_MODE_FALLBACK, 0, 0, true, true, 0},
    {0, CUDNN_HEUR_MODE_FALLBACK, kStrictNan, 0, true, true, 0},
};
// The first of all where OOC_FAKE_HUNGRY says how many bytes of workspace it wants for each sample.
// Any other engine then takes so much longer for each.
constexpr FakeEngine kHungry{20, CUDNN_HEUR_MODE_A, 0, 0, true, true, 0};
constexpr int kBesideHungry = 100;  // milliseconds on events' clock: other programs take fewer
// In backward filter; they have no note.
constexpr FakeEngine kSilent[] = {
    {17, CUDNN_HEUR_MODE_A, 0, 0, false, true, 0},
    {47, CUDNN_HEUR_MODE_A, kTensorCore, 0, false, true, 0},
};
// Where 16-bit inputs meet a float output.
constexpr FakeEngine kMixed{70,          CUDNN_HEUR_MODE_FALLBACK,
                            kTensorCore, 1 << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION,
                            true,        true,
                            kScratch};

// Of a convolution whose sums are finished.
constexpr FakeEngine kFused{
    71,   CUDNN_HEUR_MODE_A, kTensorCore, 1 << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, true,
    true, kScratch};

}  // namespace fake
