// Statistics of elements, and how those of parts are merged, for all back ends.
#pragma once

#include "geom/element.h"

namespace oocdnn {

// In the order of SumNumber.
struct Moments {
  double sum, squares, count, mean, deviations;
};

// The difference is NaN for infinities and NaN.
OOC_ELEMENT bool IsFinite(double v) {
  return v - v == 0;  // NOLINT(misc-redundant-expression)
}

// Merges statistics of two sets of elements (Chan, Golub and LeVeque). Sets with equal means keep
// exactly that mean, and deviations between them are 0.
OOC_ELEMENT void Merge(const Moments& part, Moments* to) {
  if (part.count == 0) return;
  const Moments before = *to;
  if (before.count == 0) {
    *to = part;
    return;
  }
  to->sum += part.sum;
  to->squares += part.squares;
  to->count += part.count;
  const double apart = part.mean - before.mean, share = part.count / to->count;
  to->mean += apart * share;
  to->deviations += part.deviations + apart * apart * before.count * share;
}

// Statistics of one or more elements from sums of v - origin and its square, where `origin` is one
// of the elements: the difference of the two then cancels by a factor of at most the number of
// elements. The mean is relative to `from`.
OOC_ELEMENT Moments MomentsAbout(double origin, double from, double sum, double square,
                                 double count) {
  Moments made{0, 0, count, 0, 0};
  made.sum = count * origin + sum;
  made.squares = IsFinite(square) ? square + origin * (sum + made.sum) : square;
  made.mean = origin - from + sum / count;
  const double deviations = square - sum * sum / count;
  made.deviations = deviations < 0 ? 0 : deviations;  // NaN stays
  return made;
}

}  // namespace oocdnn
