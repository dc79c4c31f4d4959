// Random problems under random plans, and what runs one. The plans are drawn, not searched, so that
// they are stranger than any planner's: any axis cut anywhere, any legal loop order, one to three
// slots per operand.
#pragma once

#include <random>

#include "exec/tile_loop.hpp"

namespace oocdnn::testing {

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  float Real() { return static_cast<float>(Between(-1000, 1000)) * 0.0137f; }

 private:
  std::mt19937_64 engine_;
};

// A dense problem of any direction, without epilogue and pool.
Problem RandomProblem(Dice* dice);
// A plan for it, under which the engine, if it is invariant, gives the bits of one tile.
Candidate RandomCandidate(const Problem& problem, const EngineInfo& engine, Dice* dice);
// In one tile, one slot of each operand.
Candidate OneTile(const Problem& problem, const EngineInfo& engine);

// Books and runs plans on a device.
struct Runner {
  Device& device;
  TileLoop loop;
  Arena arena;
  Slabs slabs;
  int64_t steps = 0;

  explicit Runner(Device& on) : device(on), loop(on), arena(on), slabs(on, 1 << 20) {}

  // What the engine that the plan asks for refuses is kUnsupported. A taper is left out where what
  // all tiles use would have two layouts.
  Status Run(const Problem& problem, const Candidate& candidate, const OperandViews& tensors);
};

}  // namespace oocdnn::testing
