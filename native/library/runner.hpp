// Runner: runs calls by their plans, and plans again where memory is short.
#pragma once

#include <string>
#include <vector>

#include "library/planner.hpp"

namespace oocdnn {

struct CallStats {
  RunStats run;
  int64_t peak_device_bytes = 0, device_allocations = 0, prepared = 0, budget_bytes = 0;
  double predicted_seconds = 0.0, planning_seconds = 0.0;
  AxisArray split{};
  std::string engine;
};

// Device memory of the caller that a call may use, in stream order of the caller's stream.
struct Scratch {
  void* data = nullptr;
  int64_t bytes = 0;
};

class Runner {
 public:
  // Both must outlive it. The turn of the session is held in all functions.
  Runner(Session& session, Planner& planner) : session_(session), planner_(planner) {}

  // See Context::Run.
  Status Run(const Problem& problem, const OperandViews& operands, void* stream,
             const Progress& progress, const Scratch& scratch, int64_t workspace);
  Status Run(const Program& program, const std::vector<OperandViews>& operands, void* stream,
             const Progress& progress, int64_t workspace);
  // Of the call that runs, as far as it has come, or of the last one.
  [[nodiscard]] const CallStats& stats() const { return stats_; }

 private:
  // A call of one node, during the attempts to run it.
  struct NodeCall {
    const Problem& problem;
    const OperandViews& tensors;
    const Terms& terms;
    Stream caller = nullptr;
    const Progress& progress;
    Arena& arena;
  };
  // A call of a program. `then`: the caller's stream, if it continues when all work is done and the
  // host does not wait.
  struct ProgramCall {
    const Program& program;
    const std::vector<OperandViews>& tensors;
    int64_t workspace = kNoLimit;
    Stream caller = nullptr, then = nullptr;
    const Progress& progress;
    int64_t budget = 0;
  };
  // What came of an attempt to run a plan of so many bytes; 0: no other plan would help.
  struct Attempt {
    Status status;
    int64_t bytes = 0;
    bool device_is_short = false;
  };

  // Makes attempts within less and less memory until one has enough. `attempt(budget)` is an error
  // where there is no plan.
  template <class Try>
  Status MakeAttempts(int64_t budget, const Arena& arena, const Try& attempt);
  // Waits for what uses the arena if it is too small, and makes it larger.
  Status Reserve(Arena& arena, int64_t bytes);
  // Notes what the plan says in the statistics.
  void NotePlan(const Booking& first, const Tiling& tiling, double seconds);
  Status RunNode(const NodeCall& call, int64_t budget);
  // Pins the operands that the booking wants pinned while it runs.
  Status RunPinned(const Booking& booking, const NodeCall& call, Stream then);
  Status RunProgram(const ProgramCall& call);
  Attempt RunSections(const std::vector<ProgramSection>& sections, const ProgramCall& call);
  Attempt RunSection(const ProgramSection& section, const ProgramCall& call);
  // Assigns buffers to the results that sections pass to each other.
  Status Join(const std::vector<ProgramSection>& sections, const Program& program,
              std::vector<OperandViews>* tensors);
  // The number of steps of each section; single nodes are planned to know it.
  Result<std::vector<int64_t>> StepsOf(const std::vector<ProgramSection>& sections,
                                       const ProgramCall& call);

  Session& session_;
  Planner& planner_;
  CallStats stats_;
};

}  // namespace oocdnn
