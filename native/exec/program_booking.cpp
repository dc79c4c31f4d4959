#include "exec/program_booking.hpp"

#include <algorithm>
#include <utility>

#include "base/checked.hpp"
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

Result<Booking> PrepareNode(Device& device, const ProgramRequest& request, size_t node,
                            const Candidate& candidate, const ShapeOfTiles& shape_of,
                            int64_t estimate) {
  const PlanRequest& own = request.nodes[node];
  Booking booking;
  booking.problem = own.problem;
  booking.candidate = candidate;
  booking.inner = request.program.PassedTo(node);
  const int64_t beside = Add(estimate, 2 * own.bounce_bytes);
  const int64_t workspace = std::max<int64_t>(own.budget - beside, 0);
  Status prepared = Prepare(device, own, shape_of, workspace, &booking);
  if (prepared.ok()) return booking;
  if (prepared.code() == Code::kUnsupported) {
    const bool usual = booking.usual.parts.empty();
    prepared = std::move(prepared).WithDetail(usual ? static_cast<int64_t>(node) : kShortTiles);
  }
  return std::move(prepared).With(Format("link %zu of a chain", request.program.LinkOf(node)));
}

void PlaceBounce(int64_t bytes, Offsets* offsets, std::vector<Booking>* nodes) {
  std::array<int64_t, 2> bounce{};
  for (int64_t& offset : bounce) offset = offsets->Book(bytes);
  for (Booking& node : *nodes) {
    node.bounce = bounce;
    node.bounce_bytes = bytes;
  }
}

}  // namespace oocdnn
