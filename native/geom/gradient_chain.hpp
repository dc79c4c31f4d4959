// The program of the gradients of a chain of forward convolutions: the links forward, as far as
// anything needs them, and then, the last one first, the gradients of each. It runs tile by tile of
// the batch, so that of a tensor between nodes there are never more than some samples at a time.
#pragma once

#include <optional>
#include <vector>

#include "geom/program.hpp"

namespace oocdnn {

// A link and its gradients. The forward problem saves what these need, unless the caller has that
// of an earlier pass; there are none where nobody wants any, of the link or of one before it.
struct TrainedLink {
  Problem forward;
  std::optional<Problem> gradients;
  bool has_saved = false;
};

struct GradientProgram {
  Program program{Traversal::kSamples};
  std::vector<bool> gradients;  // by node, whether it is its link's gradients
};

// `links` go together, as those of MakeChain do, and of the last one gradients are wanted.
// kUnsupported for links with a scale, a residual or an alpha, and what else no chain computes.
Result<GradientProgram> MakeGradientChain(const std::vector<TrainedLink>& links);

// Where dz comes in: as itself, or as dy where nothing comes after that.
inline Operand GradientRead(const Problem& gradients) {
  return gradients.passes_y() ? Operand::kZ : Operand::kY;
}

}  // namespace oocdnn
