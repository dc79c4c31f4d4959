// Walk: the steps of what a tile loop runs, in order: of bookings those of their schedules, which
// cut the same batch alike where there are several; of a chain all links of a tile at once.
#pragma once

#include <memory>
#include <vector>

#include "exec/booking.hpp"
#include "geom/chain.hpp"
#include "geom/schedule.hpp"

namespace oocdnn {

// Links over one sequence of tiles; most often there is one. `tiles` is null where each of them has
// a schedule of its own.
struct Work {
  std::vector<const Booking*> links;
  const ChainTiles* tiles = nullptr;
  int ring = 1;  // slots of x and the last result in a chain
};

class Walk {
 public:
  // The work must outlive this.
  explicit Walk(const Work& work);

  [[nodiscard]] int64_t Steps() const {
    return work_.tiles != nullptr ? work_.tiles->Steps() : schedules_.front()->Steps();
  }
  // Fills in the next step of each link; false after the last.
  bool Next(std::vector<Step>* steps);

 private:
  const Work& work_;
  std::vector<std::unique_ptr<Schedule>> schedules_;  // by link
  int64_t next_ = 0;
};

}  // namespace oocdnn
