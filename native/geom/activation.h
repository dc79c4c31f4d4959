// Activations: one row each, and the functions of one element that all back ends share.
#pragma once

#ifndef __CUDACC__
#include <cmath>
#endif

#include "geom/element.h"

namespace oocdnn {

// F(name, number, word in problem strings, an example of it in messages, whether it has a
// parameter, whether it is smooth: its derivative takes other values than 0 and 1). The numbers are
// part of the C interface.
#define OOC_ACTIVATIONS(F)                           \
  F(Identity, 0, "", "", false, false)               \
  F(Relu, 1, "relu", " +relu", false, false)         \
  F(ClippedRelu, 2, "clip", " +clip6", true, false)  \
  F(Elu, 3, "elu", " +elu1", true, true)             \
  F(Sigmoid, 4, "sigmoid", " +sigmoid", false, true) \
  F(Tanh, 5, "tanh", " +tanh", false, true)          \
  F(Swish, 6, "swish", " +swish1", true, true)       \
  F(Softplus, 7, "softplus", " +softplus1", true, true)

enum class Activation : int {
#define OOC_ROW(name, number, ...) k##name = number,
  OOC_ACTIVATIONS(OOC_ROW)
#undef OOC_ROW
};

#define OOC_ROW(...) +1
constexpr int kActivations = OOC_ACTIVATIONS(OOC_ROW);
#undef OOC_ROW

OOC_ELEMENT float Exp(float v) { return expf(v); }
OOC_ELEMENT double Exp(double v) { return exp(v); }
OOC_ELEMENT float ExpMinus1(float v) { return expm1f(v); }
OOC_ELEMENT double ExpMinus1(double v) { return expm1(v); }
OOC_ELEMENT float LogPlus1(float v) { return log1pf(v); }
OOC_ELEMENT double LogPlus1(double v) { return log1p(v); }
OOC_ELEMENT float TanH(float v) { return tanhf(v); }
OOC_ELEMENT double TanH(double v) { return tanh(v); }

template <class T>
OOC_ELEMENT T SigmoidOf(T v) {
  return T(1) / (T(1) + Exp(-v));
}

// The value at `v`. NaN stays NaN in all of them.
template <class T>
OOC_ELEMENT T Activate(Activation activation, T parameter, T v) {
  switch (activation) {
    case Activation::kIdentity: return v;
    case Activation::kRelu: return v < T(0) ? T(0) : v;
    case Activation::kClippedRelu: {
      const T low = v < T(0) ? T(0) : v;
      return low > parameter ? parameter : low;
    }
    case Activation::kElu: return v > T(0) ? v : parameter * ExpMinus1(v);
    case Activation::kSigmoid: return SigmoidOf(v);
    case Activation::kTanh: return TanH(v);
    case Activation::kSwish: return v * SigmoidOf(parameter * v);
    case Activation::kSoftplus: {  // without a power that overflows
      const T scaled = parameter * v;
      const T above = scaled > T(0) ? scaled : T(0);
      return (above + LogPlus1(Exp(scaled > T(0) ? -scaled : scaled))) / parameter;
    }
  }
  return v;
}

// The derivative at `v` of a smooth activation. 1 - sigmoid(v) is sigmoid(-v), which keeps all of
// its digits where the other rounds to 0.
template <class T>
OOC_ELEMENT T SlopeOf(Activation activation, T parameter, T v) {
  switch (activation) {
    case Activation::kElu: return v > T(0) ? T(1) : parameter * Exp(v);
    case Activation::kSigmoid: return SigmoidOf(v) * SigmoidOf(-v);
    case Activation::kTanh: return T(4) * SigmoidOf(v + v) * SigmoidOf(-v - v);
    case Activation::kSwish: {
      const T scaled = parameter * v;
      return SigmoidOf(scaled) * (T(1) + scaled * SigmoidOf(-scaled));
    }
    case Activation::kSoftplus: return SigmoidOf(parameter * v);
    default: return T(1);
  }
}

}  // namespace oocdnn
