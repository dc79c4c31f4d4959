// Activations of runs of elements.
#pragma once

#include <cstdint>
#include <type_traits>

#include "geom/activation.h"

namespace oocdnn::cpu {

// A loop for each activation, so that the compiler can vectorize it.
template <class T>
void ActivateAll(Activation activation, T parameter, T* v, int64_t count) {
  const auto each = [&](auto constant) {
    for (int64_t i = 0; i < count; ++i) v[i] = Activate(constant(), parameter, v[i]);
  };
  switch (activation) {
#define OOC_ROW(name, ...) \
  case Activation::k##name: return each(std::integral_constant<Activation, Activation::k##name>{});
    OOC_ACTIVATIONS(OOC_ROW)
#undef OOC_ROW
  }
}

}  // namespace oocdnn::cpu
