// The prices of a chain's candidates, with what all of them share worked out once.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "model/price/chain_plan.hpp"
#include "model/price/cost.hpp"

namespace oocdnn {

// Of one tile, by link; of a short one where there are any.
struct ChainSeconds {
  std::vector<double> usual, ends;
};

class ChainPrices {
 public:
  // Both must outlive this.
  ChainPrices(const ProgramRequest& request, std::shared_ptr<ChainHalos> halos,
              const Profile& profile);

  [[nodiscard]] const ProgramRequest& request() const { return request_; }
  [[nodiscard]] ChainTiles TilesOf(const ProgramCandidate& candidate) const;
  // By link the engine that is the fastest for such tiles. Engines are preferred in their order,
  // unless others are clearly faster.
  [[nodiscard]] std::vector<int> Fastest(const Tiling& tiling, bool sweeps) const;
  // About Price's seconds, without walking the tiles; `tiles` are the candidate's.
  [[nodiscard]] double Guess(const ProgramCandidate& candidate, const ChainTiles& tiles) const;
  // The length of the pipeline, by walking its tiles with three engines as PriceOf does.
  [[nodiscard]] Cost Price(const ProgramCandidate& candidate) const;

 private:
  [[nodiscard]] const Rates& RatesOf(size_t link, int engine) const;
  [[nodiscard]] ChainSeconds SecondsOf(const ProgramCandidate& candidate,
                                       const ChainTiles& tiles) const;
  [[nodiscard]] double SecondsOf(const ProgramCandidate& candidate, size_t link,
                                 const ChainTiles& tiles, bool is_short) const;

  const ProgramRequest& request_;
  const std::shared_ptr<ChainHalos> halos_;
  const Profile& profile_;
  std::vector<std::vector<std::optional<Rates>>> rates_;  // by link and engine
};

}  // namespace oocdnn
