// The fields of a problem by name, each of them once. The structured bindings name every member, so
// that a member without a name here does not compile.
#pragma once

#include "geom/problem.hpp"

namespace oocdnn {

// Calls visit(name, field) for every field but the strides, which only count where an operand is
// there and has more than one element. `Some`: Problem, const or not.
template <class Some, class Visit>
void VisitFields(Some& problem, const Visit& visit) {
  auto& [direction, rank, shape, dtype, math, flip, alpha, beta, epilogue, pool, saves, clips,
         slopes, also, prologue, sums, pairs, strides] = problem;
  static_cast<void>(strides);
  visit("direction", direction);
  visit("rank", rank);
  visit("dtype", dtype);
  visit("math", math);
  visit("flip", flip);
  visit("alpha", alpha);
  visit("beta", beta);
  visit("saves", saves);
  visit("clips", clips);
  visit("slopes", slopes);
  visit("sums", sums);
  visit("pairs", pairs);

  auto& [n, g, k, c, in, filter, out, pad_before, pad_after, stride, dilation, pooled, saved,
         tables] = shape;
  visit("shape.n", n);
  visit("shape.g", g);
  visit("shape.k", k);
  visit("shape.c", c);
  visit("shape.in", in);
  visit("shape.filter", filter);
  visit("shape.out", out);
  visit("shape.pad_before", pad_before);
  visit("shape.pad_after", pad_after);
  visit("shape.stride", stride);
  visit("shape.dilation", dilation);
  visit("shape.pooled", pooled);
  visit("shape.saved", saved);
  visit("shape.tables", tables);

  auto& [scale, bias, residual, residual_alpha, activation, parameter] = epilogue;
  visit("epilogue.scale", scale);
  visit("epilogue.bias", bias);
  visit("epilogue.residual", residual);
  visit("epilogue.residual_alpha", residual_alpha);
  visit("epilogue.activation", activation);
  visit("epilogue.parameter", parameter);

  auto& [mode, window, pool_stride, pool_before, pool_after, ceil] = pool;
  visit("pool.mode", mode);
  visit("pool.window", window);
  visit("pool.stride", pool_stride);
  visit("pool.pad_before", pool_before);
  visit("pool.pad_after", pool_after);
  visit("pool.ceil", ceil);

  auto& [dw, db] = also;
  visit("also.dw", dw);
  visit("also.db", db);

  auto& [affine, before, before_parameter] = prologue;
  visit("prologue.affine", affine);
  visit("prologue.activation", before);
  visit("prologue.parameter", before_parameter);
}

}  // namespace oocdnn
