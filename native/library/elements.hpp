// Loops over the elements of strided tensors in host memory.
#pragma once

#include "geom/problem.hpp"

namespace oocdnn {

// Calls `each` with the offsets of each element, in elements, in two tensors with these dims.
template <class Each>
void ForEachElement(const Dims& dims, const Dims& a, const Dims& b, const Each& each,
                    size_t axis = 0, int64_t at_a = 0, int64_t at_b = 0) {
  const bool last = axis + 1 == dims.size();
  for (int64_t i = 0; i < dims[axis]; ++i, at_a += a[axis], at_b += b[axis]) {
    if (last) {
      each(at_a, at_b);
    } else {
      ForEachElement(dims, a, b, each, axis + 1, at_a, at_b);
    }
  }
}

}  // namespace oocdnn
