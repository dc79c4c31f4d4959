// Planner: the plans of a context, the file that they are remembered in, and the machine's profile,
// which they rest on.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/recent.hpp"
#include "calibrate/calibrate.hpp"
#include "library/terms.hpp"
#include "planner/plan_report.hpp"
#include "planner/program_planner.hpp"
#include "planner/timed_tiles.hpp"
#include "store/plan_memory.hpp"

namespace oocdnn {

using PlanPointer = std::shared_ptr<const PlanReport>;
using ProgramPlan = std::shared_ptr<const std::vector<ProgramSection>>;

// The turn of the session is held in all functions but `memory`.
class Planner {
 public:
  explicit Planner(Session& session);  // which must outlive it

  // The plan for a problem: a remembered one or a new one.
  Result<PlanPointer> Lookup(const Problem& problem, const Terms& terms);
  Result<ProgramPlan> Lookup(const Program& program, const std::vector<Terms>& terms);
  // Predicted seconds of a program, by estimate: no engine is prepared.
  Result<double> Price(const Program& program, const std::vector<Terms>& terms);
  // Prepares a plan that is given as text, and uses it for such terms before all others.
  Status Prescribe(const Problem& problem, const Terms& terms, const std::string& plan);
  // Remembers a plan for other terms than it was made for.
  Status Keep(const Problem& problem, const Terms& terms, const PlanPointer& plan);
  // Forgets all plans but the prescribed ones, after the profile has changed.
  void Forget();

  [[nodiscard]] PlanRequest RequestFor(const Problem& problem, const Terms& terms) const;
  // The request of a call that is not part of another one: it leaves out rows of x that the problem
  // skips, and may pin operands while it runs.
  [[nodiscard]] PlanRequest CallRequestFor(const Problem& problem, const Terms& terms) const;
  // The profile with the rates of the problem, or of all nodes, measured where they were missing.
  const Profile& ProfileFor(const Problem& problem);
  const Profile& ProfileFor(const Program& program);
  MachineProfile& Machine();
  PlanMemory& memory() { return memory_; }
  // Whether calls may pin operands while they run; false once the system refused to.
  [[nodiscard]] bool pins() const { return pins_; }
  void SetPins(bool pins) { pins_ = pins; }
  // Counts engine preparations.
  [[nodiscard]] int64_t& prepared() { return prepared_; }

 private:
  static std::string KeyOf(const Problem& problem, const Terms& terms);
  static std::string KeyOf(const Program& program, const std::vector<Terms>& terms);
  static std::string PrescriptionOf(const Problem& problem, Terms terms);
  [[nodiscard]] std::vector<PlanRequest> RequestsFor(const Program& program,
                                                     const std::vector<Terms>& terms) const;
  // The remembered plan, or a better one in its place.
  Result<PlanPointer> LookAgain(const PlanRequest& request, PlanPointer* kept);
  TimedTiles& TimedOf(const PlanRequest& request);
  Result<PlanPointer> Prescribed(const PlanRequest& request, const std::string& plan);
  // The plan from the file of plans, else a new one, which is stored.
  Result<PlanReport> MakePlan(const PlanRequest& request);
  Result<PlanReport> SearchPlan(const PlanRequest& request, std::optional<uint64_t> key);
  void Remember(uint64_t key, const PlanRequest& request, const PlanReport& report);
  Result<PlanReport> RecallPlan(const PlanRequest& request, const RememberedPlan& kept);
  Result<PlanReport> BookPlan(const PlanRequest& request, const Candidate& candidate,
                              double run_seconds);
  Result<PlanReport> ChoosePlan(const PlanRequest& request);
  // The plan if all operands are on the device.
  Result<PlanReport> ChooseInCore(const PlanRequest& request, const Profile& profile);

  Session& session_;
  std::unique_ptr<MachineProfile> profile_;
  PlanMemory memory_;
  // A network has hundreds of problems, all of which run in each step.
  static constexpr size_t kPlansKept = 512, kProgramsKept = 16;
  using ByText = std::hash<std::string>;
  Recent<std::string, PlanPointer, ByText> plans_{kPlansKept};
  Recent<std::string, ProgramPlan, ByText> programs_{kProgramsKept};
  Recent<std::string, TimedTiles, ByText> timed_{kPlansKept};  // by TilesKeyOf
  // The reasons why joint passes have no plan.
  Recent<std::string, Status, ByText> refused_{kPlansKept};
  std::map<std::string, PlanPointer> prescribed_;
  int64_t prepared_ = 0;
  bool pins_ = true;
};

}  // namespace oocdnn
