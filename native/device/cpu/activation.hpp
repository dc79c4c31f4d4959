// Activation functions over short runs of float or double, and the slopes of the smooth ones. NaN
// stays NaN in all of them.
#pragma once

#include <cmath>
#include <cstdint>

#include "geom/problem.hpp"

namespace oocdnn::cpu {

template <class T>
T SigmoidOf(T u) {
  return T(1) / (T(1) + std::exp(-u));
}

template <class T>
void Activate(Activation activation, T parameter, T* v, int64_t count) {
  const auto each = [&](auto fn) {
    for (int64_t i = 0; i < count; ++i) v[i] = fn(v[i]);
  };
  switch (activation) {
    case Activation::kIdentity: return;
    case Activation::kRelu: return each([](T u) { return u < T(0) ? T(0) : u; });
    case Activation::kClippedRelu:
      return each([=](T u) {
        const T low = u < T(0) ? T(0) : u;
        return low > parameter ? parameter : low;
      });
    case Activation::kElu:
      return each([=](T u) { return u > T(0) ? u : parameter * std::expm1(u); });
    case Activation::kSigmoid: return each([](T u) { return SigmoidOf(u); });
    case Activation::kTanh: return each([](T u) { return std::tanh(u); });
    case Activation::kSwish: return each([=](T u) { return u * SigmoidOf(parameter * u); });
  }
}

// The derivative at `u` of a smooth activation. 1 - sigmoid(u) is sigmoid(-u), which keeps all of
// its digits where the other rounds to 0.
template <class T>
T SlopeOf(Activation activation, T parameter, T u) {
  switch (activation) {
    case Activation::kElu: return u > T(0) ? T(1) : parameter * std::exp(u);
    case Activation::kSigmoid: return SigmoidOf(u) * SigmoidOf(-u);
    case Activation::kTanh: return T(4) * SigmoidOf(u + u) * SigmoidOf(-u - u);
    case Activation::kSwish: {
      const T v = parameter * u;
      return SigmoidOf(v) * (T(1) + v * SigmoidOf(-v));
    }
    default: return T(1);
  }
}

}  // namespace oocdnn::cpu
