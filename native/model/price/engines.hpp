// Engines: when three engines that work at the same time do the pieces of work of a schedule.
//
// Pieces are given in the order in which they are enqueued, and each engine takes its own in that
// order. A piece may wait for pieces of the other engines, and begins a hop after the last of those
// has ended. A copy takes a while before its bytes cross the wire, and a fetch and a drain whose
// bytes do so at the same time hold each other up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace oocdnn {

class Engines {
 public:
  static constexpr int64_t kNothing = -1;  // where a piece waits for no other

  // A convolution, or a move of rolled rows.
  struct Computation {
    int64_t step = 0;
    double seconds = 0.0;
    int64_t fetch = kNothing, drain = kNothing;  // to wait for
    double begin = 0.0, end = 0.0;
  };
  struct Copy {
    int64_t step = 0;
    double before = 0.0;             // seconds without the wire: all of it, inside the device
    double crossing = 0.0;           // and with it, where the wire is its own
    int64_t computation = kNothing;  // to wait for
    double begin = 0.0, end = 0.0;
  };

  // `hop`: seconds from the end of a piece to the beginning of one of another engine that waited
  // for it. `together`: how fast each of two copies crosses that do so at the same time; alone: 1.
  // `expected`: there is room for so many pieces of each engine from the beginning.
  Engines(double hop, double together, int64_t expected = 0) : hop_(hop), together_(together) {
    const auto room = static_cast<size_t>(expected);
    fetch_.copies.reserve(room);
    computations_.reserve(room);
    drain_.copies.reserve(room);
  }

  // Each gives the number of the piece among those of its engine.
  int64_t Fetch(const Copy& copy) { return Add(&fetch_.copies, copy); }
  int64_t Compute(const Computation& computation) { return Add(&computations_, computation); }
  int64_t Drain(const Copy& copy) { return Add(&drain_.copies, copy); }

  // Has them work, all of it once.
  void Run();
  // When the pieces of the first `steps` steps have ended.
  [[nodiscard]] double EndOf(int64_t steps) const;

  [[nodiscard]] const std::vector<Copy>& fetches() const { return fetch_.copies; }
  [[nodiscard]] const std::vector<Computation>& computations() const { return computations_; }
  [[nodiscard]] const std::vector<Copy>& drains() const { return drain_.copies; }

 private:
  // What copies in one direction, and how far it is.
  enum class Phase : uint8_t { kIdle, kBefore, kCrossing };
  struct Lane {
    std::vector<Copy> copies;
    size_t done = 0;  // copies
    Phase phase = Phase::kIdle;
    double left = 0.0;  // seconds of the phase
    double free = 0.0;  // when the last copy ended
  };

  template <class Piece>
  static int64_t Add(std::vector<Piece>* pieces, const Piece& piece) {
    pieces->push_back(piece);
    return static_cast<int64_t>(pieces->size()) - 1;
  }
  // Computes as far as what has been copied suffices.
  void Advance();
  // When the lane's next copy can begin; infinity where that is not known yet, or there is none.
  [[nodiscard]] double NextOf(const Lane& lane) const;
  // How fast copies go now, each of them.
  [[nodiscard]] double Speed() const;
  // To the lane's next phase.
  static void Turn(Lane* lane, double now);

  const double hop_, together_;
  Lane fetch_, drain_;
  std::vector<Computation> computations_;
  size_t computed_ = 0;
};

}  // namespace oocdnn
