// Activation functions over short runs of float or double. NaN stays NaN in all of them.
#pragma once

#include <cmath>
#include <cstdint>

#include "geom/problem.hpp"

namespace oocdnn::cpu {

template <class T>
void Activate(Activation activation, T parameter, T* v, int64_t count) {
  const auto each = [&](auto fn) {
    for (int64_t i = 0; i < count; ++i) v[i] = fn(v[i]);
  };
  const auto sigmoid = [](T u) { return T(1) / (T(1) + std::exp(-u)); };
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
    case Activation::kSigmoid: return each(sigmoid);
    case Activation::kTanh: return each([](T u) { return std::tanh(u); });
    case Activation::kSwish: return each([=](T u) { return u * sigmoid(parameter * u); });
  }
}

}  // namespace oocdnn::cpu
