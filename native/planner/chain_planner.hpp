// Plans for whole chains: depth first where all links fit together, else in sections, each of which
// runs depth first and leaves its result in host memory for the next.
#pragma once

#include <memory>
#include <vector>

#include "exec/chain_booking.hpp"

namespace oocdnn {

// Links [begin, end) of a chain. A single link is a call of its own, and has no booking.
struct ChainSection {
  size_t begin = 0, end = 0;
  double seconds = 0.0;  // predicted
  std::shared_ptr<const ChainBooking> booking;
};

// `links`: a request for each link by itself; tensors between links are in host memory. `chain`:
// the links, as they were given to MakeChain. What is added to a later link lies within the section
// of that, or is left for it by the section that ends there.
// Chooses the sections that are predicted to take the least time together, and books them.
// Whether a single link has a plan at all, its own call says. After the links' deadline it looks
// for no more sections, and prepares no second candidate of any. `prepared` counts engine
// preparations.
Result<std::vector<ChainSection>> PlanChain(Device& device, const Chain& chain,
                                            const std::vector<PlanRequest>& links,
                                            const Profile& profile, int64_t* prepared);

// What PlanChain's choice is predicted to take, by estimate: nothing is prepared.
Result<double> PriceChain(Device& device, const Chain& chain, const std::vector<PlanRequest>& links,
                          const Profile& profile);

}  // namespace oocdnn
