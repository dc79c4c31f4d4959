// How long a booked plan's convolution of one tile really takes.
#pragma once

#include "exec/booking.hpp"

namespace oocdnn {

// Seconds of the fastest of a few runs on tiles of zeros, in device memory taken for as long as it
// lasts, tiles of what is used in place included; 0 where that is more than `most_bytes`, or not to
// be had.
double TimeRun(Device& device, const Booking& booking, int64_t most_bytes);

}  // namespace oocdnn
