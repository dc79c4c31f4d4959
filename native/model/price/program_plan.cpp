#include "model/price/program_plan.hpp"

#include "base/config.hpp"
#include "model/price/chain_plan.hpp"
#include "model/price/describe.hpp"
#include "model/price/gradient_plan.hpp"

namespace oocdnn {

Candidate CandidateOf(const ProgramRequest& request, const ProgramCandidate& candidate,
                      size_t node) {
  return request.program.traversal() == Traversal::kSamples
             ? CandidateBySamples(request, candidate, node)
             : CandidateByRows(request, candidate, node);
}

int64_t EstimateBytes(const ProgramRequest& request, const ProgramCandidate& candidate) {
  if (request.program.traversal() == Traversal::kSamples) return GradientBytes(request, candidate);
  return ChainBytes(request, candidate, TilesOf(request, candidate));
}

std::string Describe(const ProgramRequest& request, const ProgramCandidate& candidate) {
  std::string text = TileText(candidate.tiling);
  if (candidate.sweeps) text += ", halos kept";
  for (size_t i = 0; i < request.program.size(); ++i) {
    const auto engine = static_cast<size_t>(candidate.engine[i]);
    text += (i == 0 ? "; " : ", ") + request.nodes[i].engines[engine].name;
  }
  return text + "; " + BytesText(EstimateBytes(request, candidate)) + " in all";
}

}  // namespace oocdnn
