// A C function for the planner of chains.
#include <sstream>

#include "model/price/chain_floor.hpp"
#include "model/price/chain_plan.hpp"
#include "testing/export.hpp"
#include "testing/requests.hpp"

namespace oocdnn::testing {
namespace {

// The links stand in a line each; behind "<-" where the residual comes from.
Result<ProgramRequest> ChainRequestOf(const char* problems, int64_t budget, const char* engines) {
  std::vector<Problem> links;
  std::vector<int64_t> residual;
  std::istringstream lines(problems);
  for (std::string line; std::getline(lines, line);) {
    const size_t arrow = line.find("<-");
    const bool named = arrow != std::string::npos;
    residual.push_back(named ? std::stoll(line.substr(arrow + 2)) : kFromOutside);
    OOC_ASSIGN(links.emplace_back(), ParseProblem(line.substr(0, arrow)));
  }
  OOC_ASSIGN(const Program given, MakeChain(links, residual));
  OOC_TRY(CheckDepthFirst(given, 0, given.size()));
  const Program chain = SectionOf(given, 0, given.size());
  ProgramRequest request{chain, {}};
  for (size_t i = 0; i < chain.size(); ++i) {
    request.nodes.push_back(RequestOf(chain[i], budget, engines));
    for (int o = 0; o < kOperands; ++o) {
      if (!chain.IsInner(i, static_cast<Operand>(o))) continue;
      request.nodes[i].tiers[o] = Tier::kTile;
    }
  }
  return request;
}

std::string Json(const RankedProgram& ranked, double floor) {
  const Tiling& tiling = ranked.candidate.tiling;
  const Cost& cost = ranked.cost;
  std::string text = "{\"length\": [";
  for (int a = 0; a < kAxes; ++a) {
    text += Format("%s%lld", a == 0 ? "" : ", ", static_cast<long long>(tiling.length[a]));
  }
  return text + Format(
                    "], \"short\": %lld, \"ring\": %d, \"sweeps\": %d, \"steps\": %lld, "
                    "\"seconds\": %.17g, \"floor_seconds\": %.17g, "
                    "\"fetch_seconds\": %.17g, \"compute_seconds\": %.17g, "
                    "\"drain_seconds\": %.17g, \"bytes_in\": %lld, \"bytes_out\": %lld, "
                    "\"device_bytes\": %lld}",
                    static_cast<long long>(tiling.taper.length), ranked.candidate.ring,
                    ranked.candidate.sweeps ? 1 : 0, static_cast<long long>(cost.steps),
                    cost.seconds, floor, cost.fetch_seconds, cost.compute_seconds,
                    cost.drain_seconds, static_cast<long long>(cost.bytes_in),
                    static_cast<long long>(cost.bytes_out),
                    static_cast<long long>(cost.device_bytes));
}

Result<std::string> SearchText(const char* problems, int64_t budget, const char* engines,
                               const char* profile_text) {
  OOC_ASSIGN(const Profile profile, ParseProfile(profile_text));
  OOC_ASSIGN(const ProgramRequest request, ChainRequestOf(problems, budget, engines));
  OOC_ASSIGN(const std::vector<RankedProgram> found, SearchChain(request, profile));
  const double floor = ChainFloors(request.nodes, profile).Of(0, request.program.size());
  std::string text = "[";
  for (const RankedProgram& one : found) text += (text.size() > 1 ? ", " : "") + Json(one, floor);
  return text + "]";
}

}  // namespace
}  // namespace oocdnn::testing

// What the search finds, best first, as a JSON array. `detail` receives the status's number.
OOC_EXPORT int oocdnn_testing_search_chain(const char* problems, int64_t budget,
                                           const char* engines, const char* profile_text,
                                           int64_t* detail, char* json, int64_t capacity) {
  const oocdnn::Result<std::string> found =
      oocdnn::testing::SearchText(problems, budget, engines, profile_text);
  *detail = found.status().detail();
  if (!found.ok()) return oocdnn::testing::Answer(found.status(), json, capacity);
  oocdnn::testing::CopyText(found.value(), json, capacity);
  return 0;
}
