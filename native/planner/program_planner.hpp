// Plans for programs, in sections that run one after the other: of a chain those that are predicted
// to take the least time together, of other programs one.
#pragma once

#include <memory>
#include <vector>

#include "exec/program_booking.hpp"

namespace oocdnn {

// Nodes [begin, end) of a program. A section leaves its result in host memory for later ones. A
// section without a booking is a single node, which is a call of its own.
struct ProgramSection {
  size_t begin = 0, end = 0;
  double seconds = 0.0;  // predicted
  std::shared_ptr<const ProgramBooking> booking;
};

// `nodes`: a request for each node; what they say of operands that nodes pass to each other does
// not matter. Chooses and books the sections. After the deadline of the first request it looks for
// no more sections of a chain, and prepares no second candidate of any. Whether a section without a
// booking has a plan, its own call says. kOutOfMemory (detail(): the least budget that works) where
// a program of one section does not fit. `prepared` counts engine preparations.
Result<std::vector<ProgramSection>> PlanProgram(Device& device, const Program& program,
                                                std::vector<PlanRequest> nodes,
                                                const Profile& profile, int64_t* prepared);

// The time that PlanProgram's choice is predicted to take, by estimate: nothing is prepared.
Result<double> PriceProgram(Device& device, const Program& program, std::vector<PlanRequest> nodes,
                            const Profile& profile);

// Parts of both, by the program's traversal.
Result<std::vector<ProgramSection>> PlanChain(Device& device, const Program& chain,
                                              const std::vector<PlanRequest>& links,
                                              const Profile& profile, int64_t* prepared);
Result<double> PriceChain(Device& device, const Program& chain,
                          const std::vector<PlanRequest>& links, const Profile& profile);
Result<ProgramSection> PlanGradients(Device& device, ProgramRequest request, const Profile& profile,
                                     int64_t* prepared);
Result<double> PriceGradients(const ProgramRequest& request, const Profile& profile);

}  // namespace oocdnn
