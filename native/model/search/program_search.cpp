#include "model/price/chain_plan.hpp"
#include "model/price/gradient_plan.hpp"

namespace oocdnn {

Result<std::vector<RankedProgram>> SearchProgram(const ProgramRequest& request,
                                                 const Profile& profile) {
  const bool samples = request.program.traversal() == Traversal::kSamples;
  return samples ? SearchGradients(request, profile) : SearchChain(request, profile);
}

}  // namespace oocdnn
