#include "model/search/refine.hpp"

#include <algorithm>

#include "model/price/cost.hpp"
#include "model/price/footprint.hpp"
#include "model/profile/profile_rates.hpp"

namespace oocdnn {

TileRate RateOfTile(const PlanRequest& request, const Candidate& candidate,
                    const Profile& profile) {
  const Problem& problem = request.problem;
  const std::string& engine = request.engines[static_cast<size_t>(candidate.engine)].name;
  const bool sums = OpOf(request, candidate).out_dtype != problem.dtype;
  TileRate found;
  found.key = profile.TilesKey(engine, problem, problem.direction, sums);
  found.size =
      Rates(request, candidate.engine, profile).TileSizeOf(TileShape(problem, candidate.tiling));
  found.rate = 1 / profile.ArithmeticOf(engine, problem, problem.direction, sums)
                       .Seconds(found.size.channels, static_cast<double>(found.size.outputs));
  return found;
}

std::string Refine(const PlanRequest& request, const Candidate& candidate, double run_seconds,
                   const Evidence& known, Profile* profile) {
  const Problem& problem = request.problem;
  const auto [key, size, _] = RateOfTile(request, candidate, *profile);
  const Rates rates(request, candidate.engine, *profile);
  const ConvShape tile = TileShape(problem, candidate.tiling);
  const Partial partial = rates.PartialOf(CountsOf(candidate.tiling));
  const double own = rates.OwnOf(tile, run_seconds, partial);
  const double rate =
      PossibleRate(rates.OperationsOf(tile) / AloneSeconds(own, profile->run_seconds));
  const std::string& engine = request.engines[static_cast<size_t>(candidate.engine)].name;
  const bool sums = OpOf(request, candidate).out_dtype != problem.dtype;
  const double flops = profile->Flops(engine, problem.dtype, problem.math, problem.direction, sums);
  AddTile(size, rate, flops, &profile->OwnTiles(key));
  profile->SetTile(key, size, rate, known);
  return TileName(key, size);
}

// Priced first: short tiles are to the usual ones as the profile had it.
Cost Learn(const PlanRequest& request, const Candidate& candidate, double run_seconds,
           Profile* profile) {
  const Cost cost = PriceOf(request, candidate, *profile, run_seconds);
  Refine(request, candidate, run_seconds, {}, profile);
  return cost;
}

// Beside convolutions, what computes rolls rows over and finishes tiles: that is as predicted.
double RunSecondsOf(const PlanRequest& request, const Candidate& candidate, const Profile& profile,
                    double busy_seconds) {
  constexpr double kNothing = 1e-12;
  const Rates rates(request, candidate.engine, profile);
  const double all = PriceOf(request, candidate, profile).compute_seconds;
  const double others = PriceOf(request, candidate, profile, kNothing).compute_seconds;
  const double runs = AloneSeconds(busy_seconds, others);
  const ConvShape tile = TileShape(request.problem, candidate.tiling);
  const Partial partial = rates.PartialOf(CountsOf(candidate.tiling));
  const double predicted = rates.PredictedSeconds(tile, partial);
  return rates.UndisturbedSeconds(tile, predicted * runs / (all - others), partial);
}

}  // namespace oocdnn
