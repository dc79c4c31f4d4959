// How long a booked plan's engines really take for one tile.
#pragma once

#include "exec/booking.hpp"

namespace oocdnn {

// Seconds of the fastest of a few runs on tiles of numbers (see FillRandomly), of all parts of a
// tile's work one after the other, in device memory taken for as long as it lasts, tiles of what is
// used in place included; 0 where that is more than `most_bytes`, or not to be had.
double TimeRun(Device& device, const Booking& booking, int64_t most_bytes);
// Seconds of these that are not run: preparing timed or estimated them, and they are many.
double UnrunSeconds(const Booking& booking);

}  // namespace oocdnn
