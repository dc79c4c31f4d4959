#include "exec/program_booking.hpp"

#include "base/config.hpp"

namespace oocdnn {

Result<ProgramBooking> Book(Device& device, const ProgramRequest& request,
                            const ProgramCandidate& candidate) {
  const bool samples = request.program.traversal() == Traversal::kSamples;
  OOC_ASSIGN(ProgramBooking booking, samples ? BookGradients(device, request, candidate)
                                             : BookChain(device, request, candidate));
  if (booking.bytes <= request.budget()) return booking;
  return Error(Code::kOutOfMemory, "%s books %s, the budget is %s",
               Describe(request, candidate).c_str(), BytesText(booking.bytes).c_str(),
               BytesText(request.budget()).c_str())
      .WithDetail(booking.bytes);
}

}  // namespace oocdnn
