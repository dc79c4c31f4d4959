// Cost: seconds of every piece of work of a candidate, and from them the length of its pipeline.
//
// Three engines (fetch, compute, drain) each work in order. PriceOf (plan.hpp) walks the schedule
// with them; Estimate bounds and approximates the same length from totals alone, for the search.
#pragma once

#include <array>
#include <limits>

#include "geom/roles.hpp"
#include "model/plan.hpp"
#include "model/price/traffic.hpp"

namespace oocdnn {

// Whether tiles yield no more than parts of sums: the convolution's in the problem's own direction,
// and dw's that comes along.
struct Partial {
  bool own = false, dw = false;
};

// The profile's constants for one request and engine, and the times that follow from them.
class Rates {
 public:
  // `run_seconds`: see PriceOf.
  Rates(const PlanRequest& request, int engine, const Profile& profile, double run_seconds = 0.0);

  // A transfer of `elements` in `rows`, from where the operand is.
  [[nodiscard]] double FetchSeconds(Operand operand, int64_t elements, const RowCount& rows) const;
  [[nodiscard]] double DrainSeconds(Operand operand, int64_t elements, const RowCount& rows) const;
  // Of so many elements of a tile that are rolled over, by what computes.
  [[nodiscard]] double MoveSeconds(Operand operand, int64_t elements) const;
  // One tile's convolution, as it was timed, or else: padded rows count, as the device computes
  // them too; backward data is charged by the rows of dx in its tile, of which a stride's worth
  // counts as one of dy; and a channel axis that is cut in whole blocks, see EngineInfo. Gradients
  // that come along are run too, one after the other.
  [[nodiscard]] double RunSeconds(const ConvShape& tile, Partial partial) const;
  // The same of a short tile, whose `usual` neighbour may have been timed.
  [[nodiscard]] double ShortRunSeconds(const ConvShape& tile, const ConvShape& usual,
                                       Partial partial) const;
  // What engines take for one tile by the profile, whatever was timed.
  [[nodiscard]] double PredictedSeconds(const ConvShape& tile, Partial partial) const;
  // Of what they took alone, what the convolution in the problem's own direction did, where what
  // comes along took as long as by the profile.
  [[nodiscard]] double OwnOf(const ConvShape& tile, double seconds, Partial partial) const;
  // Of tiles of so many on each axis.
  [[nodiscard]] Partial PartialOf(const AxisArray& counts) const;
  // No run of such a tile, or of tiles that it is cut into, takes less per operation.
  [[nodiscard]] double LeastRunSeconds(const ConvShape& tile) const;
  // What RunSeconds looks for among the profile's tiles, and the operations that it charges.
  [[nodiscard]] TileSize TileSizeOf(const ConvShape& tile) const;
  [[nodiscard]] double OperationsOf(const ConvShape& tile) const;
  // What engines take for such a tile alone that take `seconds` among the copies of a call.
  [[nodiscard]] double UndisturbedSeconds(const ConvShape& tile, double seconds,
                                          Partial partial) const;
  // The pass over a finished output tile; 0 where the problem needs none.
  [[nodiscard]] double FinishSeconds(const ConvShape& tile) const;
  // Making a tile of dy; 0 where that is fetched.
  [[nodiscard]] double PoolBackwardSeconds(const ConvShape& tile) const;
  // The pass over a tile that was fetched, see Prologue; 0 where there is none.
  [[nodiscard]] double NormalizeSeconds(const ConvShape& tile) const;
  // What the host takes to enqueue so many steps.
  [[nodiscard]] double HostSeconds(int64_t steps) const;
  // What a tile's convolution takes beside its arithmetic.
  [[nodiscard]] double LaunchSeconds() const { return profile_.run_seconds; }
  // Until what waits for the end of other work begins.
  [[nodiscard]] double HopSeconds() const { return wire_.hop; }
  // Of so many bytes of the operand in so many transfers, those that nothing hides: a tile in
  // another memory order than the caller's passes through bounce memory, which a kernel empties or
  // fills, and that finds no multiprocessor before the convolution that goes on has ended.
  [[nodiscard]] double ExposedSeconds(Operand operand, int64_t bytes, int64_t transfers) const;
  // The least time for these bytes, whatever overlaps.
  [[nodiscard]] double WireSeconds(double bytes) const { return bytes / wire_.both; }
  // How fast each of a fetch and a drain goes that share the wire, of what it does alone.
  [[nodiscard]] double SpeedTogether() const { return speed_together_; }
  // What one copy costs beyond its bytes.
  [[nodiscard]] double CopySeconds() const { return profile_.copy_seconds; }
  // Whether the operand's transfers stay inside the device.
  [[nodiscard]] bool Inside(Operand operand) const { return !CrossesWire(tiers_[Index(operand)]); }
  [[nodiscard]] const MemoryOrder& memory() const { return memory_; }
  [[nodiscard]] const Roles& roles() const { return roles_; }
  [[nodiscard]] bool shared_engines() const { return profile_.shared_engines; }

 private:
  // `on_top`: of the wire in that direction.
  [[nodiscard]] double TransferSeconds(Operand operand, bool drains, const RowBytes& on_top,
                                       int64_t elements, const RowCount& rows) const;
  // Bytes per second of what crosses the wire: its own, or staging's where that is slower.
  [[nodiscard]] double CrossingRate(Operand operand, bool drains) const;
  // Has the wire do no more in both directions than staging does, where that serves both.
  void LimitBoth();
  void SlowByBounces();
  [[nodiscard]] double SpeedOfBoth() const;  // see SpeedTogether
  // The tile as it is charged, see RunSeconds.
  [[nodiscard]] ConvShape ChargedFor(const ConvShape& tile) const;
  [[nodiscard]] TileSize SizeOfCharged(const ConvShape& charged) const;
  // Whether copies go through bounce memory, and so hold up the convolutions beside them.
  [[nodiscard]] bool Bounces() const { return reorders_ && bounce_bytes_ > 0; }
  // The tile's convolution in the problem's own direction, by the profile.
  [[nodiscard]] double OwnSeconds(const ConvShape& tile, Partial partial) const;
  // Of reading and writing a tile's operands once: no convolution takes less.
  [[nodiscard]] double PassSeconds(const ConvShape& tile) const;
  // What comes along with dx, of the tile's dy: dw, at so many seconds an operation, and db.
  [[nodiscard]] double AlongSeconds(const ConvShape& tile, double filter_operation) const;
  // Seconds of one of dw's operations, alone.
  [[nodiscard]] double FilterOperation(const ConvShape& tile, Partial partial) const;
  // Whether tiles of an output have the accumulator's type, which is another than the problem's.
  [[nodiscard]] bool Sums(bool partial) const;
  // The arithmetic of such tiles; the least of any that are possible.
  static double LeastOf(const std::array<Arithmetic, 2>& arithmetic, int64_t channels);
  // Making the tile of dy that db is summed from.
  [[nodiscard]] double AgainSeconds(const ConvShape& tile) const;

  const Problem& problem_;
  Roles roles_;
  const Tiers& tiers_;
  const Profile& profile_;
  MemoryOrder memory_;
  WireRates wire_;
  StagingRates page_, file_;
  bool reorders_;          // tiles have another memory order than the caller's tensors
  int64_t bounce_bytes_;   // see PlanRequest
  int64_t element_bytes_;  // of the caller's tensors, but for what is saved
  bool fuses_;             // whole sums are finished by the engine
  int64_t finish_passes_;  // tiles like the sum's that the finishing pass reads and writes
  int64_t tile_bytes_;     // of an element inside the device
  int64_t channels_at_once_;
  // Of tiles in the problem's type, and of sums; the latter alone, of dw where that comes along.
  std::array<Arithmetic, 2> arithmetic_, filter_arithmetic_;
  double run_seconds_;          // of every usual tile, 0: by the profile
  double beside_copies_ = 1.0;  // so many times as long does arithmetic take among the copies
  double speed_together_ = 1.0;
};

// What one operand costs over the whole schedule: fetch seconds, or drain seconds of what is
// written.
struct Flow {
  double seconds = 0.0;
  double exposed = 0.0;              // of them, what no convolution hides
  double move_seconds = 0.0;         // of rows that are rolled over, restoring, normalising
  int64_t transfers = 0, bytes = 0;  // `bytes`: that cross the wire
  int64_t rows = 0;                  // in how many pieces without a gap; 0 inside the device
  // Of them, the fetch before all computing, or the drain behind it, which has the wire to itself.
  double end_seconds = 0.0, end_bytes = 0.0;
  bool varies = false;  // whether it may be another with fewer slots
};
// `steps`: of the operand's memory, where so much is cut.
Flow FlowOf(const Problem& problem, const Rates& rates, const Cuts& cuts, const LoopOrder& order,
            const MemoryOrder::Steps& steps, Operand operand, int depth);

struct Totals {
  std::array<Flow, kOperands> flow;
  double compute_seconds = 0.0;  // without rows that are rolled over
  int64_t steps = 0;
};
Totals TotalsOf(const Problem& problem, const Rates& rates, const Cuts& cuts,
                const LoopOrder& order, const Depths& depths);
// Compute seconds of all steps, finishing passes included. `tile`: ShapeOf these cuts.
double ComputeSeconds(const Problem& problem, const Rates& rates, const Cuts& cuts,
                      const ConvShape& tile);

// Exact bytes and busy times of a candidate. `seconds` is a lower bound: the longest of the three
// stages, the wire and the host; on shared engines the sum of the stages. Copies inside the device
// count as computing.
Cost CostOf(const Rates& rates, const Totals& totals);

// About the least time by the wire alone where it is shared: the first fetches and the last drain
// have it to themselves, and between them it goes at the rate of both directions. What copies cost
// beyond their bytes counts once for both, which is a surcharge that measurements bear out: where
// the two are out of step, one has the wire alone meanwhile. 0 on shared engines.
double WireBound(const Rates& rates, const Totals& totals);

// An approximation of the pipeline's length: the busiest engine, what slots without a spare make
// wait for each other, and the ramps at both ends. `least`: the longer of `cost` and WireBound.
// `held_up`: what waits counts as held up by the copies in the other direction too, which comes
// close but may be too much.
double Estimate(const Rates& rates, const Totals& totals, const Cost& cost, double least,
                const Depths& depths, bool held_up);

constexpr double kWhateverItIs = std::numeric_limits<double>::infinity();
// PriceOf (plan.hpp) with rates that are at hand, and with the cuts of the candidate's tiling.
// `limit`: nothing is walked where the seconds are above it anyhow; then they are a bound that is.
Cost PriceOf(const PlanRequest& request, const Candidate& candidate, const Rates& rates,
             const Cuts& cuts, double limit = kWhateverItIs);
Cost PriceOf(const PlanRequest& request, const Candidate& candidate, const Rates& rates,
             double limit = kWhateverItIs);

// What candidates are ranked by: the predicted length, and a little of the work that is hidden in
// it, which disturbs the rest and comes to light where a prediction errs.
double RankOf(const Cost& cost, double seconds);

// No plan of the problem takes less on this engine, of any piece of work: every byte that is of use
// crosses once, and nothing is padded.
Cost FloorCost(const PlanRequest& request, const Rates& rates);
double FloorOf(const PlanRequest& request, int engine, const Profile& profile);
// Nor on any engine of the request, of which there must be one.
double FloorOf(const PlanRequest& request, const Profile& profile);
// Of that the arithmetic alone, on the engine that does it in the least time.
double ComputeFloorOf(const PlanRequest& request, const Profile& profile);

}  // namespace oocdnn
