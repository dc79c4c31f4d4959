#include "model/refine.hpp"

#include <algorithm>

#include "model/cost.hpp"
#include "model/profile_rates.hpp"

namespace oocdnn {

std::string Refine(const PlanRequest& request, const Candidate& candidate, double run_seconds,
                   const Evidence& known, Profile* profile) {
  const Problem& problem = request.problem;
  const std::string& engine = request.engines[static_cast<size_t>(candidate.engine)].name;
  const auto key = Profile::FlopsKey(engine, problem.dtype, problem.math, problem.direction);
  const Rates rates(request, candidate.engine, *profile);
  const ConvShape tile = TileShape(problem, candidate.tiling);
  const TileSize size = rates.TileSizeOf(tile);
  const double alone = AloneSeconds(run_seconds, profile->run_seconds);
  const double flops = profile->Flops(engine, problem.dtype, problem.math, problem.direction);
  const double rate = rates.OperationsOf(tile) / alone;
  AddTile(size, rate, flops, &profile->tiles[key]);
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
  const double predicted = rates.RunSeconds(TileShape(request.problem, candidate.tiling));
  return rates.UndisturbedSeconds(predicted * runs / (all - others));
}

}  // namespace oocdnn
