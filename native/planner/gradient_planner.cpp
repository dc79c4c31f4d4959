// Plans of programs whose tiles are ranges of samples: one section.
#include "planner/program_planner.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/checked.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "model/price/gradient_plan.hpp"

namespace oocdnn {
namespace {

constexpr int64_t kRoomy = int64_t{1} << 50;

class GradientPlanner {
 public:
  GradientPlanner(Device& device, ProgramRequest request, const Profile& profile, int64_t* prepared)
      : device_(device), request_(std::move(request)), profile_(profile), prepared_(*prepared) {}

  Result<ProgramSection> Run() {
    for (;;) {
      OOC_ASSIGN(const std::vector<RankedProgram> ranked, SearchGradients(request_, profile_));
      OOC_ASSIGN(const bool refused, TryAll(ranked));
      if (made_) return std::move(*made_);
      if (!refused) return TooSmall(ranked);
    }
  }

 private:
  // True where it ended because an engine refuses, which the request does without from now on.
  Result<bool> TryAll(const std::vector<RankedProgram>& ranked) {
    double larger = 1.0;  // so many times as large as estimated were the tiles that did not fit
    for (const RankedProgram& one : ranked) {
      const double estimated = larger * static_cast<double>(one.cost.device_bytes);
      if (!one.least && estimated > static_cast<double>(request_.budget())) continue;
      Result<ProgramBooking> booking = Book(device_, request_, one.candidate);
      prepared_ += static_cast<int64_t>(request_.nodes.size());
      if (booking.ok()) {
        made_ = ProgramSection{0, request_.nodes.size(), one.cost.seconds,
                               std::make_shared<const ProgramBooking>(std::move(booking).value())};
        return false;
      }
      last_ = booking.status();
      Log(LogLevel::kDebug, "gradients of a chain: %s", last_.message().c_str());
      if (last_.code() == Code::kOutOfMemory) {
        const double bytes = static_cast<double>(last_.detail());
        larger = std::max(larger, bytes / static_cast<double>(one.cost.device_bytes));
        continue;
      }
      if (last_.code() != Code::kUnsupported) return last_;
      if (last_.detail() == kShortTiles) continue;
      const auto problem = static_cast<size_t>(last_.detail());
      const auto engine = static_cast<size_t>(one.candidate.engine[problem]);
      request_.nodes[problem].engines[engine].name.clear();
      return true;
    }
    return false;
  }

  // What a last resort takes where there is room enough, with what its engines were refused.
  [[nodiscard]] int64_t BytesOf(const ProgramCandidate& candidate) const {
    ProgramRequest roomy = request_;
    for (PlanRequest& mine : roomy.nodes) mine.budget = kRoomy;
    const Result<ProgramBooking> booking = Book(device_, roomy, candidate);
    if (!booking.ok()) return kRoomy;
    int64_t workspace = 0;
    for (const Booking& one : booking->nodes) {
      workspace = std::max(workspace, one.WorkspaceBytes());
    }
    const int64_t beside = Add(EstimateBytes(request_, candidate), 2 * request_.bounce_bytes());
    return std::max(booking->bytes, Add(beside, workspace));
  }

  Status TooSmall(const std::vector<RankedProgram>& ranked) const {
    if (last_.code() != Code::kOutOfMemory) return last_;
    int64_t works = kRoomy;
    for (const RankedProgram& one : ranked) {
      if (one.least) works = std::min(works, BytesOf(one.candidate));
    }
    if (works == kRoomy) return last_;
    return Status(last_)
        .With(Format("a budget of %s is too small for the gradients of a chain in one, %lld bytes "
                     "work; or compute them link by link",
                     BytesText(request_.budget()).c_str(), static_cast<long long>(works)))
        .WithDetail(works);
  }

  Device& device_;
  ProgramRequest request_;
  const Profile& profile_;
  int64_t& prepared_;
  std::optional<ProgramSection> made_;
  Status last_;
};

}  // namespace

Result<ProgramSection> PlanGradients(Device& device, ProgramRequest request, const Profile& profile,
                                     int64_t* prepared) {
  return GradientPlanner(device, std::move(request), profile, prepared).Run();
}

Result<double> PriceGradients(const ProgramRequest& request, const Profile& profile) {
  if (request.nodes.size() == 1) {
    OOC_ASSIGN(const PlanSearch search, Search(WithoutBounce(request.nodes.front()), profile));
    return search.ranked.front().cost.seconds;
  }
  OOC_ASSIGN(const std::vector<RankedProgram> ranked, SearchGradients(request, profile));
  const RankedProgram& best = ranked.front();
  if (!best.least) return best.cost.seconds;
  return Error(Code::kOutOfMemory, "the gradients of a chain need %s at least, the budget is %s",
               BytesText(best.cost.device_bytes).c_str(), BytesText(request.budget()).c_str())
      .WithDetail(best.cost.device_bytes);
}

}  // namespace oocdnn
