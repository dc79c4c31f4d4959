// Pool: windows over a convolution's output, and what a training pass saves of them. Values and
// arithmetic of one axis; problem.hpp puts them together.
#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.hpp"

namespace oocdnn {

using Spatial = std::array<int64_t, 3>;  // D, H, W (or T, R, S; O, P, Q)

// The values are those of the C API.
enum class PoolMode : int {
  kNone = 0,
  kMax = 1,            // the first of the largest in row-major order; a NaN is larger than all
  kAverage = 2,        // padding counts as zeros
  kAverageInside = 3,  // over the elements that there are
};
constexpr int kPoolModes = 4;

// A window on each spatial axis. Where nothing is pooled it is one element, and z is y.
struct Pool {
  PoolMode mode = PoolMode::kNone;
  Spatial window{1, 1, 1}, stride{1, 1, 1};
  Spatial pad_before{0, 0, 0}, pad_after{0, 0, 0};  // less than the window
  // A last window that passes the end counts too, if it begins before that. An axis shorter than
  // the window has one window, unless it ends a whole stride before the window.
  bool ceil = false;

  bool operator==(const Pool&) const = default;
  [[nodiscard]] bool pools() const { return mode != PoolMode::kNone; }
  // Elements of a window.
  [[nodiscard]] int64_t Elements() const;
  // Whether z is y, element by element: a maximum over windows of one.
  [[nodiscard]] bool Copies() const {
    return mode == PoolMode::kMax &&
           *this == Pool{PoolMode::kMax, {1, 1, 1}, {1, 1, 1}, {}, {}, ceil};
  }
  // The rows of z on an axis on which y has so many; 0 where the window does not fit.
  [[nodiscard]] int64_t OutExtent(int axis, int64_t extent) const;
  // Of the rows of y, those up to the last that a window reaches.
  [[nodiscard]] int64_t RowsReached(int axis, int64_t extent) const;
};

// What backward needs to know of the forward pass, in whole bits. See Saving for what else comes
// with either behind a smooth activation.
enum class Saved : int {
  kNothing = 0,
  // For each element of z, the place of its winner in the window in row-major order; one more
  // value says that the activation is flat there, and no gradient passes.
  kWinners = 1,
  kAlive = 2,  // for each element of y, 1 where a gradient passes the activation
};

// A tile's rows begin at a multiple of so many elements: always with a whole byte.
constexpr int64_t kSavedUnit = 8;
constexpr int kMostSavedBits = 16;

// Behind a smooth activation (IsSmooth of problem.hpp) a gradient passes as much as the slope there
// says: the derivative, rounded once to the type of the tensors. It is the first of an element's
// bytes; a winner's place, where there is more than one, follows in whole bytes, lowest first.
struct Saving {
  Saved what = Saved::kNothing;
  int bits = 0;                // of each element
  DType slope = DType::kByte;  // its type; kByte: there are no slopes

  bool operator==(const Saving&) const = default;
  [[nodiscard]] bool slopes() const { return slope != DType::kByte; }
  // Of each element's bits, those that are no slope.
  [[nodiscard]] int code_bits() const {
    return slopes() ? bits - 8 * static_cast<int>(SizeOf(slope)) : bits;
  }
  // Bytes of a row along W: bits follow each other from the lowest of the first byte on, and a row
  // begins with a byte of its own.
  [[nodiscard]] int64_t RowBytes(int64_t elements) const;
  // The first element with bits in a row's byte number `byte`, with which a unit begins.
  [[nodiscard]] int64_t ElementAt(int64_t byte) const {
    return bits > 0 ? byte / bits * kSavedUnit : 0;
  }
};

}  // namespace oocdnn
