// Context: a device with a budget, the plans made for it, and the tile loop that runs them.
//
// A context runs one call at a time; calls from several threads are serialized. In a forked child
// it creates new threads and streams.
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
  int busy_gpus = 0;             // other GPUs of the host that are busy during calls; for GPUs only
  bool reproducible = false;
  bool trace = false;
  Math math = Math::kFp32;
  Planning planning = Planning::kEstimate;
  double planning_seconds = kPlanningSeconds;
};

// The file of plans for contexts with these options; "" if plans are not stored, which is so behind
// wrappers that limit memory or inject failures.
std::string PlanFileOf(const ContextOptions& options);

struct CallStats {
  RunStats run;
  int64_t peak_device_bytes = 0, device_allocations = 0, prepared = 0, budget_bytes = 0;
  double predicted_seconds = 0.0, planning_seconds = 0.0;
  AxisArray split{};
  std::string engine;
};

using PlanPointer = std::shared_ptr<const PlanReport>;

// Device memory of the caller that a call may use, in stream order of the caller's stream.
struct Scratch {
  void* data = nullptr;
  int64_t bytes = 0;
};

// Stands for the context's limit of workspace.
constexpr int64_t kLimitOfContext = -1;

class Context {
 public:
  static Result<std::unique_ptr<Context>> Create(const ContextOptions& options);
  ~Context();

  // Runs one call to its end. The tensors are views in the six dimensions of their operands.
  // `stream` is the caller's stream, as a handle of the device: operands on a GPU or in pinned
  // memory are read and written in stream order. Scratch memory is used only if all operands are on
  // the device; if it suffices, the call books no other memory. `workspace`: the most bytes of an
  // engine's workspace.
  Status Run(const Problem& problem, const HostTensors& operands, void* stream,
             const Progress& progress, const Scratch& scratch = {},
             int64_t workspace = kLimitOfContext);
  // Runs a chain (geom/chain.hpp), with the tensors of each problem in the order of computation. Of
  // tensors between two links only the strides are used. Results that sections pass to each other
  // are in memory that stays allocated until Release.
  Status RunChain(const Chain& chain, const std::vector<HostTensors>& operands, void* stream,
                  const Progress& progress, int64_t workspace = kLimitOfContext);
  // Runs the problems that compute the gradients of a chain (geom/gradient_chain.hpp). Tensors
  // between two problems are not used.
  Status RunGradients(const GradientChain& chain, const std::vector<HostTensors>& operands,
                      void* stream, const Progress& progress, int64_t workspace = kLimitOfContext);
  // Predicted seconds of RunChain and RunGradients, by estimate: no engine is prepared, and no data
  // is read. Tensors without data count as pinned.
  Result<double> PriceChain(const Chain& chain, const std::vector<HostTensors>& operands,
                            int64_t workspace = kLimitOfContext);
  Result<double> PriceGradients(const GradientChain& chain,
                                const std::vector<HostTensors>& operands,
                                int64_t workspace = kLimitOfContext);
  // Plans a problem without running it. Operands are in pageable memory, or on the device and
  // aligned where the placement says so.
  Result<PlanSummary> Plan(const Problem& problem, const Placement& placement = {});
  // Predicts a plan that the caller gives as text (model/text/plan_text.hpp); no engine is
  // prepared.
  Result<PlanSummary> Price(const Problem& problem, const Placement& placement,
                            const std::string& plan);
  // Prepares such a plan, and uses it in calls whose operands have this placement.
  Status UsePlan(const Problem& problem, const Placement& placement, const std::string& plan);
  // The `best` candidates of the search and `random` other ones that fit by estimate, for this
  // placement.
  Result<std::vector<RunnerUp>> Candidates(const Problem& problem, const Placement& placement,
                                           int best, int random, uint64_t seed);
  // Plans for aligned operands on the device; budget 0: the context's. Returns the bytes of scratch
  // memory with which Run uses this plan, given the same limit of workspace.
  Result<int64_t> PlanInCore(const Problem& problem, int64_t budget,
                             int64_t workspace = kLimitOfContext);

  // See MeasureParts; all operands are on the device and aligned.
  Result<std::vector<MicroBatch>> MeasureParts(const Problem& problem, BatchPolicy policy);

  // See HostMemory. From any thread.
  Result<std::unique_ptr<HostMemory>> AllocateHost(int64_t bytes) {
    return HostMemory::Allocate(stack_.device, bytes);
  }
  Result<std::unique_ptr<HostMemory>> PinHost(void* data, int64_t bytes) {
    return HostMemory::Pin(stack_.device, data, bytes);
  }

  // Bytes that the library may pin without being asked to: 0 if the device gains nothing from
  // pinned memory, or the user allows none.
  [[nodiscard]] int64_t AutoPinBytes() const;

  CallStats stats();
  // True if the calling thread is inside a call on this context, as in a callback.
  [[nodiscard]] bool IsCalledByThisThread() const { return turn_.HeldByThisThread(); }
  Status Release();
  // Completes the machine's profile (MachineProfile::Complete), which later plans use; returns its
  // path.
  Result<std::string> Calibrate(const Progress& progress);
  // Adjusts the machine's profile to calls of the problem with all operands in host memory
  // (MachineProfile::Refine). `busy_seconds`: of the compute stage, for each call.
  Result<Refinement> Refine(const Problem& problem, const std::vector<double>& busy_seconds);
  // The timeline so far as Chrome trace JSON; kUnsupported without a trace device.
  Result<std::string> Trace();
  // See PlanMemory::Report.
  [[nodiscard]] Component ReportPlans() { return memory_->Report(); }
  // The violations that the check device found, one a line; "" if there are none.
  std::string CheckReport();
  [[nodiscard]] const Device& device() const { return *stack_.device; }
  [[nodiscard]] int64_t budget() const { return budget_; }
  [[nodiscard]] const ContextOptions& options() const { return options_; }

 private:
  struct ThreadState;  // threads and what depends on them: a forked child builds it anew
  // Serializes calls. `function` is named in the error of a nested call.
  using Turn = std::unique_lock<ProcessLock>;
  Result<Turn> TakeTurn(const char* function);
  explicit Context(ContextOptions options);
  Status Open();
  // Creates the thread state anew in a forked child. The turn is held here and in all functions
  // below.
  Status EnterProcess();
  TileLoop& Loop();
  Status Settle();  // waits for what runs
  const Profile& ProfileFor(const Problem& problem);
  MachineProfile& Machine();
  // The parameters of a plan besides its problem. `in_place`: all operands that may be used in
  // place, or none.
  struct Terms {
    Homes home{};
    InPlace in_place{};
    int64_t budget = 0, workspace = kNoLimit;
  };
  // One call, during the attempts to run it.
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
  // The request of a call that is not part of another one: it may pin operands while it runs.
  [[nodiscard]] PlanRequest CallRequestFor(const Problem& problem, const Terms& terms) const;
  // The plan for a problem: a remembered one or a new one.
  Result<PlanPointer> Lookup(const Problem& problem, const Terms& terms);
  // The remembered plan, or a better one in its place.
  Result<PlanPointer> LookAgain(const PlanRequest& request, PlanPointer* kept);
  TimedTiles& TimedOf(const PlanRequest& request);
  void ForgetPlans();  // after the profile has changed
  Result<PlanPointer> Prescribed(const PlanRequest& request, const std::string& plan);
  // The plan from the file of plans, else a new one, which is stored.
  Result<PlanReport> MakePlan(const PlanRequest& request);
  Result<PlanReport> SearchPlan(const PlanRequest& request, std::optional<uint64_t> key);
  void Remember(uint64_t key, const PlanRequest& request, const PlanReport& report);
  Result<PlanReport> RecallPlan(const PlanRequest& request, const RememberedPlan& kept);
  Result<PlanReport> BookPlan(const PlanRequest& request, const Candidate& candidate,
                              double run_seconds);
  // Calls `make`, which prepares an engine and may need device memory meanwhile.
  template <class Make>
  auto BesideArena(const Make& make) -> decltype(make());
  Result<PlanReport> ChoosePlan(const PlanRequest& request);
  // The plan if all operands are on the device.
  Result<PlanReport> ChooseInCore(const PlanRequest& request, const Profile& profile);
  [[nodiscard]] Homes HomesOf(const Problem& problem, const HostTensors& tensors) const;
  // The operands that may be used in place: all on the device, and aligned.
  [[nodiscard]] InPlace InPlaceOf(const Problem& problem, const HostTensors& tensors,
                                  const Homes& home) const;
  [[nodiscard]] Terms TermsOf(const Problem& problem, const HostTensors& tensors,
                              int64_t workspace) const;
  // The terms for operands at the given placement; then for all of them on the device.
  [[nodiscard]] Terms TermsOf(const Problem& problem, const Placement& placement) const;
  [[nodiscard]] Terms TermsInCore(const Problem& problem) const;
  // The caller's stream if operands are read and written in its order, else null.
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
  // `made`: the result of MakeChain for the chain.
  Result<std::vector<HostTensors>> LocateChain(const Chain& chain, const Chain& made,
                                               const std::vector<HostTensors>& operands);
  // The terms of each link, as a call within the budget.
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
  // The number of steps of each section; single links are planned to know it.
  Result<std::vector<int64_t>> StepsOf(const std::vector<ChainSection>& sections,
                                       const Chain& chain, const std::vector<HostTensors>& tensors,
                                       const ChainCall& call);
  // `short_of`: set to true if memory that the plan needs was not available.
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
  // A network has hundreds of problems, all of which run in each step.
  static constexpr size_t kPlansKept = 512;
  using ByText = std::hash<std::string>;
  Recent<std::string, PlanPointer, ByText> plans_{kPlansKept};
  Recent<std::string, TimedTiles, ByText> timed_{kPlansKept};  // by TilesKeyOf
  // The reasons why joint passes have no plan.
  Recent<std::string, Status, ByText> refused_{kPlansKept};
  std::map<std::string, PlanPointer> prescribed_;  // by UsePlan; used before all others
  static constexpr size_t kChainsKept = 8;
  Recent<std::string, ChainPointer> chains_{kChainsKept};
  Recent<std::string, GradientPointer> gradients_{kChainsKept};
  std::unique_ptr<SectionBuffers> buffers_;
  int64_t prepared_ = 0;
  bool pins_ = true;  // false once the system refused to pin memory for a call
  CallStats stats_;
};

// A device that times engines allocates memory for that, and so does a search that times plans. The
// arena's memory is released for them meanwhile.
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
