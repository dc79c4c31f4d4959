// The requests of a program's nodes, completed for its planner.
#include "planner/program_planner.hpp"

#include <algorithm>
#include <utility>

#include "geom/skipped_rows.hpp"

namespace oocdnn {
namespace {

void ShareBounce(std::vector<PlanRequest>* nodes) {
  int64_t bytes = 0;
  for (const PlanRequest& node : *nodes) bytes = std::max(bytes, node.bounce_bytes);
  for (PlanRequest& node : *nodes) node.bounce_bytes = bytes;
}

// A link by itself, and the links at the ends of a section, find inner operands in host memory. The
// problem is that of the link's own call; sections of several links have those of the program.
std::vector<PlanRequest> LinksOf(const Program& chain, std::vector<PlanRequest> nodes) {
  ShareBounce(&nodes);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (size_t o = 0; o < kOperands; ++o) {
      if (!chain.IsInner(i, static_cast<Operand>(o))) continue;
      nodes[i].tiers[o] = Tier::kPinned;
      nodes[i].in_place[o] = false;
    }
    nodes[i].problem = WithoutSkippedRows(nodes[i].problem, nodes[i].tiers);
  }
  return nodes;
}

ProgramRequest RequestOf(const Program& program, std::vector<PlanRequest> nodes) {
  ShareBounce(&nodes);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::array<bool, kOperands> passed = program.PassedTo(i);
    nodes[i].in_place = {};
    nodes[i].may_compile = true;  // arithmetic is most of what a program takes
    for (size_t o = 0; o < kOperands; ++o) {
      if (passed[o]) nodes[i].tiers[o] = Tier::kTile;
    }
  }
  return {program, std::move(nodes)};
}

}  // namespace

Result<std::vector<ProgramSection>> PlanProgram(Device& device, const Program& program,
                                                std::vector<PlanRequest> nodes,
                                                const Profile& profile, int64_t* prepared) {
  if (program.traversal() == Traversal::kRows) {
    return PlanChain(device, program, LinksOf(program, std::move(nodes)), profile, prepared);
  }
  OOC_ASSIGN(ProgramSection section,
             PlanGradients(device, RequestOf(program, std::move(nodes)), profile, prepared));
  return std::vector<ProgramSection>{std::move(section)};
}

Result<double> PriceProgram(Device& device, const Program& program, std::vector<PlanRequest> nodes,
                            const Profile& profile) {
  if (program.traversal() == Traversal::kRows) {
    return PriceChain(device, program, LinksOf(program, std::move(nodes)), profile);
  }
  return PriceGradients(RequestOf(program, std::move(nodes)), profile);
}

}  // namespace oocdnn
