// Walk: the steps of what a tile loop runs, in order: of one booking those of its schedule, of a
// chain all links of a tile at once.
#pragma once

#include <optional>
#include <vector>

#include "exec/booking.hpp"
#include "geom/chain.hpp"
#include "geom/schedule.hpp"

namespace oocdnn {

// Links over one sequence of tiles; most often there is one, and `tiles` is null.
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
    return schedule_ ? schedule_->Steps() : work_.tiles->Steps();
  }
  // Fills in the next step of each link; false after the last.
  bool Next(std::vector<Step>* steps);

 private:
  const Work& work_;
  std::optional<Schedule> schedule_;
  int64_t next_ = 0;
};

}  // namespace oocdnn
