// Placement: where the operands of a problem live, as a problem string says it: "x@pin w@dev".
//
// It is kept apart from Problem because it does not change what is computed: plans, logs and
// benchmarks write it behind the problem, and ParseProblem passes over it.
#pragma once

#include <array>
#include <string>

#include "base/status.hpp"
#include "geom/problem.hpp"

namespace oocdnn {

enum class Place : int {
  kUnsaid = 0,    // the string does not say
  kPageable = 1,  // page: ordinary host memory
  kPinned = 2,    // pin: host memory that the device reaches
  kDevice = 3,    // dev: memory of the device
  kFile = 4,      // file: a mapped file
};
constexpr int kPlaces = 5;

const char* Name(Place place);  // "page", "pin", "dev", "file"; "" for kUnsaid

struct Placement {
  std::array<Place, kOperands> place{};

  bool operator==(const Placement&) const = default;
};

// The placement words of a problem string; words without "@" are not looked at. An operand is named
// by its place (x, w, y, b, scale, residual, old, z, saved) or as its direction calls it (dx, dw,
// dy, db); those of Also are input, also_dw and also_db.
Result<Placement> ParsePlacement(const std::string& text);

// "x@pin w@dev": the operands that are said, by place; empty where none is.
std::string ToString(const Placement& placement);

}  // namespace oocdnn
