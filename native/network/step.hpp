// A training step as its planner sees it: operations in order, and the tensors that forward leaves
// for backward. Positions are indices of operations; bytes are integers. Times are seconds, finite
// and not negative; those named `host` are what it takes the host to enqueue something, 0 where
// that is not known.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"

namespace oocdnn::network {

struct Operation {
  double seconds = 0.0;
  double host = 0.0;
  int64_t fixed_bytes = 0;  // in use while it runs, besides the saved tensors
  int64_t begin_bytes = 0;  // those in use when it begins, and while recipes run for it
};

// A way to compute a saved tensor again before its first use in backward.
struct Recipe {
  std::vector<int64_t> inputs;  // saved tensors of smaller numbers
  double seconds = 0.0;
  double host = 0.0;
  int64_t temporary_bytes = 0;
};

// A tensor that forward leaves for backward.
struct Saved {
  int64_t bytes = 0;
  int64_t produced = 0;          // position of the operation that writes it
  int64_t last_forward_use = 0;  // `produced` if no other reads it in forward
  int64_t first_use = 0;         // in backward
  int64_t last_use = 0;
  int64_t squeezed_bytes = -1;   // of a smaller form that stays; below 0: there is none
  double squeeze_seconds = 0.0;  // to the smaller form and back, one half each
  double squeeze_host = 0.0;     // likewise
  bool movable = true;
  bool squeezed_whole = true;  // false: recipes cannot read what comes back from that form
  std::vector<Recipe> recipes;
};

// Copies between the device and memory that holds what is swapped. Rates in bytes a second.
struct Link {
  double to_host = 1.0;
  double from_host = 1.0;
  double latency = 0.0;  // seconds from the start of a copy to its first byte
  double host = 0.0;     // of one copy
};

struct Step {
  std::vector<Operation> operations;
  int64_t forward = 0;       // operations that are forward, the first ones
  std::vector<Saved> saved;  // in the order of production
  Link link;
};

// The policy of a saved tensor. The values are those of the C API.
using Choice = int32_t;
constexpr Choice kKeep = 0;
constexpr Choice kSwap = 1;
constexpr Choice kSqueeze = 2;
constexpr Choice kRecipe = 3;  // its first recipe; the others follow

// kInvalidProblem where positions, sizes, times or recipes contradict each other, or where all
// bytes together pass 2^60.
Status Check(const Step& step);

// The same where a choice is none that the tensor has.
Status CheckChoices(const Step& step, const std::vector<Choice>& choices);

// Whether recipes cannot read the tensor with this choice.
inline bool IsPartial(const Saved& one, Choice choice) {
  return choice == kSqueeze && !one.squeezed_whole;
}

// The policies that a saved tensor may have, kKeep first. Recipes are among them whose inputs
// backward still has where the result is needed.
std::vector<Choice> OptionsOf(const Step& step, const Saved& one);

}  // namespace oocdnn::network
