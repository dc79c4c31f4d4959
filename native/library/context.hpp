// Context: a device with a budget, the plans made for it, and the tile loop that runs them.
//
// One call at a time; calls from several threads take turns. A context that is used in a forked
// child makes itself new streams there.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/backends.hpp"
#include "base/process_lock.hpp"
#include "base/recent.hpp"
#include "calibrate/calibrate.hpp"
#include "exec/tile_loop.hpp"
#include "geom/placement.hpp"
#include "library/section_buffers.hpp"
#include "memory/host_memory.hpp"
#include "model/search/micro_batch.hpp"
#include "planner/chain_planner.hpp"
#include "planner/gradient_planner.hpp"
#include "planner/plan_report.hpp"
#include "planner/planning.hpp"
#include "planner/timed_tiles.hpp"
#include "store/plan_memory.hpp"

namespace oocdnn {

struct ContextOptions {
  DeviceOptions device;
  std::string budget = "auto";   // "2GiB", "50%", "auto"
  std::string profile;           // path; "": the cache directory; "none": built-in guesses
  std::string plans;             // path; "": as the profile; "none": they are not remembered
  int64_t host_cap = 0;          // pinned bytes; 0: by the machine
  int64_t workspace = kNoLimit;  // the most bytes of an engine's workspace
  int busy_gpus = 0;             // others of the host, while calls run; only a GPU minds
  bool reproducible = false;
  bool trace = false;
  Math math = Math::kFp32;
  Planning planning = Planning::kEstimate;
  double planning_seconds = kPlanningSeconds;
};

// The file that remembers plans for contexts with these options; "": none does. Behind devices that
// limit or fail nothing is remembered.
std::string PlanFileOf(const ContextOptions& options);

struct CallStats {
  RunStats run;
  int64_t peak_device_bytes = 0, device_allocations = 0, prepared = 0, budget_bytes = 0;
  double predicted_seconds = 0.0, planning_seconds = 0.0;
  AxisArray split{};
  std::string engine;
};

using PlanPointer = std::shared_ptr<const PlanReport>;

// Device memory of the caller's that a call may use, in the order of the caller's stream.
struct Scratch {
  void* data = nullptr;
  int64_t bytes = 0;
};

// In the place of a call's own limit of workspace.
constexpr int64_t kLimitOfContext = -1;

class Context {
 public:
  static Result<std::unique_ptr<Context>> Create(const ContextOptions& options);
  ~Context();

  // Runs one call to its end. The tensors' views are in the six dimensions of their operands.
  // `stream` is the caller's, in the device's terms: operands on a GPU or in pinned memory are read
  // and written in its order. With scratch memory that suffices the call books nothing else; it is
  // used only where all operands are on the device. `workspace`: the most bytes of an engine's.
  Status Run(const Problem& problem, const HostTensors& operands, void* stream,
             const Progress& progress, const Scratch& scratch = {},
             int64_t workspace = kLimitOfContext);
  // Runs a chain (geom/chain.hpp) of problems in the order in which they are computed, of each
  // which with its tensors; those between two links are not looked at, but for their strides. What
  // sections leave for each other is in memory that stays until Release.
  Status RunChain(const Chain& chain, const std::vector<HostTensors>& operands, void* stream,
                  const Progress& progress, int64_t workspace = kLimitOfContext);
  // Runs what leads to the gradients of a chain (geom/gradient_chain.hpp); of what is inner the
  // tensors are not looked at.
  Status RunGradients(const GradientChain& chain, const std::vector<HostTensors>& operands,
                      void* stream, const Progress& progress, int64_t workspace = kLimitOfContext);
  // What RunChain and RunGradients are predicted to take, by estimate: nothing is prepared. Tensors
  // without data count as in pinned memory, and no data is looked at.
  Result<double> PriceChain(const Chain& chain, const std::vector<HostTensors>& operands,
                            int64_t workspace = kLimitOfContext);
  Result<double> PriceGradients(const GradientChain& chain,
                                const std::vector<HostTensors>& operands,
                                int64_t workspace = kLimitOfContext);
  // Plans without running. Operands are in pageable memory, or on the device, aligned, where the
  // placement says so.
  Result<PlanSummary> Plan(const Problem& problem, const Placement& placement = {});
  // What a plan of the caller's own (model/text/plan_text.hpp) would take; nothing is prepared.
  Result<PlanSummary> Price(const Problem& problem, const Placement& placement,
                            const std::string& plan);
  // Prepares it, and follows it in calls with the operands there.
  Status UsePlan(const Problem& problem, const Placement& placement, const std::string& plan);
  // Of the search the best, and random ones, which fit by estimate, with the operands there.
  Result<std::vector<RunnerUp>> Candidates(const Problem& problem, const Placement& placement,
                                           int best, int random, uint64_t seed);
  // The plan for operands on the device, aligned; budget 0: the context's. Gives the bytes of the
  // scratch memory with which Run follows the plan, given the same limit of workspace.
  Result<int64_t> PlanInCore(const Problem& problem, int64_t budget,
                             int64_t workspace = kLimitOfContext);

  // See MeasureParts; all operands are on the device, aligned.
  Result<std::vector<MicroBatch>> MeasureParts(const Problem& problem, BatchPolicy policy);

  // See HostMemory. From any thread.
  Result<std::unique_ptr<HostMemory>> AllocateHost(int64_t bytes) {
    return HostMemory::Allocate(stack_.device, bytes);
  }
  Result<std::unique_ptr<HostMemory>> PinHost(void* data, int64_t bytes) {
    return HostMemory::Pin(stack_.device, data, bytes);
  }

  // Bytes of memory that is not asked for that may be pinned: 0 where the device gains nothing from
  // it, or the user wants none.
  [[nodiscard]] int64_t AutoPinBytes() const;

  CallStats stats();
  // True if the calling thread is in a call on this context, which is so in its callbacks.
  [[nodiscard]] bool IsCalledByThisThread() const { return turn_.HeldByThisThread(); }
  Status Release();
  // Completes the machine's profile (MachineProfile::Complete), which later plans rest on; where it
  // is kept.
  Result<std::string> Calibrate(const Progress& progress);
  // Has the machine's profile agree with calls of the problem (MachineProfile::Refine), all
  // operands in host memory: how long what computes was busy in each. Later plans rest on it.
  Result<Refinement> Refine(const Problem& problem, const std::vector<double>& busy_seconds);
  // The timeline so far as Chrome trace JSON; kUnsupported without a trace device.
  Result<std::string> Trace();
  // See PlanMemory::Report.
  [[nodiscard]] Component ReportPlans() { return memory_->Report(); }
  // What the check device has to complain about, a line each; "" where there is none.
  std::string CheckReport();
  [[nodiscard]] const Device& device() const { return *stack_.device; }
  [[nodiscard]] int64_t budget() const { return budget_; }
  [[nodiscard]] const ContextOptions& options() const { return options_; }

 private:
  struct ThreadState;  // threads and what depends on them: a forked child builds it anew
  // One call at a time. `function` is the name that a refusal gives.
  using Turn = std::unique_lock<ProcessLock>;
  Result<Turn> TakeTurn(const char* function);
  explicit Context(ContextOptions options);
  Status Open();
  // Makes the room anew in a forked child. With the turn held, like all below.
  Status EnterProcess();
  TileLoop& Loop();
  Status Settle();  // waits for what runs
  const Profile& ProfileFor(const Problem& problem);
  MachineProfile& Machine();
  // What a plan depends on beside its problem. `in_place`: all operands that may be used where they
  // lie, or none.
  struct Terms {
    Homes home{};
    InPlace in_place{};
    int64_t budget = 0, workspace = kNoLimit;
  };
  // One call on its way through the attempts to run it.
  struct Call {
    const Problem& problem;
    const HostTensors& tensors;
    const Terms& terms;
    Stream caller = nullptr;
    const Progress& progress;
    Arena& arena;
  };
  static std::string KeyOf(const Problem& problem, const Terms& terms);
  static std::string PrescriptionOf(const Problem& problem, Terms terms);
  [[nodiscard]] PlanRequest RequestFor(const Problem& problem, const Terms& terms) const;
  // Of a call that is no part of another: it may pin operands while it runs.
  [[nodiscard]] PlanRequest CallRequestFor(const Problem& problem, const Terms& terms) const;
  // The plan for a problem, from the list or made now.
  Result<PlanPointer> Lookup(const Problem& problem, const Terms& terms);
  // The plan that is kept, or a better one in its place.
  Result<PlanPointer> LookAgain(const PlanRequest& request, PlanPointer* kept);
  TimedTiles& TimedOf(const PlanRequest& request);
  void ForgetPlans();  // which rest on what was known
  Result<PlanPointer> Prescribed(const PlanRequest& request, const std::string& plan);
  // As it was found before, else searched for and remembered.
  Result<PlanReport> PoolForwardPlan(const PlanRequest& request);
  Result<PlanReport> SearchPlan(const PlanRequest& request, std::optional<uint64_t> key);
  void Remember(uint64_t key, const PlanRequest& request, const PlanReport& report);
  Result<PlanReport> RecallPlan(const PlanRequest& request, const RememberedPlan& kept);
  Result<PlanReport> BookPlan(const PlanRequest& request, const Candidate& candidate,
                              double run_seconds);
  // Prepares something, which may take device memory for as long as that lasts.
  template <class Make>
  auto BesideArena(const Make& make) -> decltype(make());
  Result<PlanReport> ChoosePlan(const PlanRequest& request);
  // What is chosen where all operands are on the device.
  Result<PlanReport> ChooseInCore(const PlanRequest& request, const Profile& profile);
  [[nodiscard]] Homes HomesOf(const Problem& problem, const HostTensors& tensors) const;
  // Where operands may be used on the device as they lie: all on it, and aligned.
  [[nodiscard]] InPlace InPlaceOf(const Problem& problem, const HostTensors& tensors,
                                  const Homes& home) const;
  [[nodiscard]] Terms TermsOf(const Problem& problem, const HostTensors& tensors,
                              int64_t workspace) const;
  // Of operands that are where the placement says; all on the device.
  [[nodiscard]] Terms TermsOf(const Problem& problem, const Placement& placement) const;
  [[nodiscard]] Terms TermsInCore(const Problem& problem) const;
  // The caller's stream where operands are read and written in its order, else null.
  Result<Stream> CallerOf(const HostTensors& tensors, void* stream);
  [[nodiscard]] int64_t BudgetOf(const HostTensors& tensors) const;
  [[nodiscard]] int64_t BudgetOf(const std::vector<HostTensors>& tensors) const;  // the least
  Status RunWithin(const Call& call, int64_t budget);
  Status RunPinned(const Booking& booking, const Call& call, Stream then);

  using ChainPointer = std::shared_ptr<const std::vector<ChainSection>>;
  struct ChainCall {
    Stream caller = nullptr, then = nullptr;
    const Progress& progress;
    int64_t budget = 0, workspace = kNoLimit;
  };
  // `made`: of the chain, by MakeChain.
  Result<std::vector<HostTensors>> LocateChain(const Chain& chain, const Chain& made,
                                               const std::vector<HostTensors>& operands);
  // Of each link as a call within the budget.
  [[nodiscard]] std::vector<Terms> TermsOf(const Chain& chain,
                                           const std::vector<HostTensors>& tensors, int64_t budget,
                                           int64_t workspace) const;
  [[nodiscard]] std::vector<PlanRequest> RequestsFor(const Chain& chain,
                                                     const std::vector<Terms>& terms) const;
  Result<ChainPointer> LookupChain(const Chain& chain, const std::vector<HostTensors>& tensors,
                                   int64_t budget, int64_t workspace);
  // Assigns buffers to the results that sections pass to each other.
  Status Join(const std::vector<ChainSection>& sections, const Chain& chain,
              std::vector<HostTensors>* tensors);
  // By section; a single link is planned for that.
  Result<std::vector<int64_t>> StepsOf(const std::vector<ChainSection>& sections,
                                       const Chain& chain, const std::vector<HostTensors>& tensors,
                                       const ChainCall& call);
  // `short_of`: becomes true where memory was wanting that the plan counts on.
  Status RunSection(const ChainSection& section, const Chain& chain,
                    const std::vector<HostTensors>& tensors, const ChainCall& call, bool* short_of);
  Status RunSections(const std::vector<ChainSection>& sections, const Chain& chain,
                     std::vector<HostTensors> tensors, const ChainCall& call, bool* short_of);
  Status RunChainWithin(const Chain& chain, const std::vector<HostTensors>& tensors,
                        ChainCall call);

  using GradientPointer = std::shared_ptr<const GradientPlan>;
  Result<std::vector<HostTensors>> LocateGradients(const GradientChain& chain,
                                                   const std::vector<HostTensors>& operands);
  [[nodiscard]] std::vector<Terms> TermsOf(const GradientChain& chain,
                                           const std::vector<HostTensors>& tensors, int64_t budget,
                                           int64_t workspace) const;
  [[nodiscard]] GradientRequest RequestFor(const GradientChain& chain,
                                           const std::vector<Terms>& terms) const;
  Result<GradientPointer> LookupGradients(const GradientChain& chain,
                                          const std::vector<HostTensors>& tensors, int64_t budget,
                                          int64_t workspace);
  Status RunGradientsWithin(const GradientChain& chain, const std::vector<HostTensors>& tensors,
                            ChainCall call);

  ContextOptions options_;
  DeviceStack stack_;
  int64_t budget_ = 0;
  bool auto_budget_ = false;
  ProcessLock turn_;
  std::unique_ptr<ThreadState> thread_state_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Slabs> slabs_;
  std::unique_ptr<MachineProfile> profile_;
  std::unique_ptr<PlanMemory> memory_;
  // A network has hundreds of problems, and all of them come again at each step.
  static constexpr size_t kPlansKept = 512;
  using ByText = std::hash<std::string>;
  Recent<std::string, PlanPointer, ByText> plans_{kPlansKept};
  Recent<std::string, TimedTiles, ByText> timed_{kPlansKept};  // by TilesKeyOf
  // Why there is no plan for a joint pass.
  Recent<std::string, Status, ByText> refused_{kPlansKept};
  std::map<std::string, PlanPointer> prescribed_;  // by UsePlan, which come first
  static constexpr size_t kChainsKept = 8;
  Recent<std::string, ChainPointer> chains_{kChainsKept};
  Recent<std::string, GradientPointer> gradients_{kChainsKept};
  std::unique_ptr<SectionBuffers> buffers_;
  int64_t prepared_ = 0;
  bool pins_ = true;  // nothing that was to be pinned for a call was refused
  CallStats stats_;
};

// A device that tries engines out does so in memory of its own, and so are plans tried: they have
// the arena's meanwhile.
template <class Make>
auto Context::BesideArena(const Make& make) -> decltype(make()) {
  const bool tries =
      stack_.device->capabilities().tries_engines || options_.planning == Planning::kMeasure;
  const int64_t held = tries ? arena_->bytes() : 0;
  if (held == 0) return make();
  OOC_TRY(Settle());
  arena_->Release();
  auto made = make();
  static_cast<void>(arena_->Reserve(held));  // if that fails, the call that needs it says so
  return made;
}

}  // namespace oocdnn
