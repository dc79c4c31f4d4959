// GradientChain: what leads to the gradients of a chain of forward convolutions, as one sequence of
// problems: the links forward, as far as anything needs them, and then, the last one first, the
// gradients of each. It runs tile by tile of the batch, so that of what one of them leaves for
// another there are never more than some samples at a time.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "geom/problem.hpp"

namespace oocdnn {

// A link and its gradients. The forward problem saves what these need, unless the caller has that
// of an earlier pass; there are none where nobody wants any, of the link or of one before it.
struct TrainedLink {
  Problem forward;
  std::optional<Problem> gradients;
  bool has_saved = false;
};

// An operand of a problem of the sequence.
struct TensorUse {
  size_t problem = 0;
  Operand operand = Operand::kX;

  bool operator==(const TensorUse&) const = default;
};

struct GradientChain {
  // Where a problem comes from: of which link it is, and whether it is that link's gradients.
  struct Origin {
    size_t link = 0;
    bool gradients = false;
  };

  std::vector<Problem> problems;
  std::vector<Origin> origin;  // of each
  // The uses of each tensor that several problems share, or that one leaves for nobody: first
  // that which writes it or, of the caller's x and filters, that which fetches it.
  std::vector<std::vector<TensorUse>> shared;
  // By problem and operand: what is neither fetched from the caller nor left to him.
  std::vector<std::array<bool, kOperands>> inner;

  [[nodiscard]] size_t size() const { return problems.size(); }
  // Whether the tensor is the caller's.
  [[nodiscard]] bool IsOuter(const std::vector<TensorUse>& uses) const {
    const TensorUse& first = uses.front();
    return !inner[first.problem][static_cast<size_t>(Index(first.operand))];
  }
};

// `links` go together, as those of MakeChain do, and of the last one gradients are wanted.
// kUnsupported for links with a scale, a residual or an alpha, and what else no chain computes.
Result<GradientChain> MakeGradientChain(const std::vector<TrainedLink>& links);

// Where dz comes in: as itself, or as dy where nothing comes after that.
inline Operand GradientRead(const Problem& gradients) {
  return gradients.passes_y() ? Operand::kZ : Operand::kY;
}

}  // namespace oocdnn
