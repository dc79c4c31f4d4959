// How long a booked plan's convolution of one tile really takes.
#pragma once

#include "exec/booking.hpp"

namespace oocdnn {

// Seconds of the fastest of a few runs on tiles of zeros, in device memory taken for as long as it
// lasts; 0 where that is not to be had, or an operand is used where it is.
double TimeRun(Device& device, const Booking& booking);

}  // namespace oocdnn
