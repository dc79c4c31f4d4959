// Walk: the steps that a tile loop runs, in order, each with all nodes of a program. Nodes with
// schedules of their own cut the same batch alike.
#pragma once

#include <memory>
#include <vector>

#include "exec/program_booking.hpp"
#include "geom/schedule.hpp"

namespace oocdnn {

// Nodes over one sequence of tiles; most often there is one. `tiles` is null where each node has a
// schedule of its own. What it is made from must outlive it.
struct Work {
  Work(const Booking& booking) : nodes{&booking} {}  // NOLINT: a call is a program of one node
  Work(const ProgramBooking& booking);               // NOLINT: likewise

  std::vector<const Booking*> nodes;
  const ChainTiles* tiles = nullptr;
  int ring = 1;  // slots of x and the last result where there are `tiles`
};

class Walk {
 public:
  // The work must outlive this.
  explicit Walk(const Work& work);

  [[nodiscard]] int64_t Steps() const {
    return work_.tiles != nullptr ? work_.tiles->Steps() : schedules_.front()->Steps();
  }
  // Fills in the next step of each node; false after the last.
  bool Next(std::vector<Step>* steps);

 private:
  const Work& work_;
  std::vector<std::unique_ptr<Schedule>> schedules_;  // by node
  int64_t next_ = 0;
};

}  // namespace oocdnn
