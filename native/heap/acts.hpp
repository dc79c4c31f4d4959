// Acts: what the runtime takes and gives back so that an allocator serves a step's requests at
// given addresses.
//
// Each act takes the host time in every step. There are no more of them than a simulation needs:
// what is taken stays taken for as long as it serves.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heap/arena.hpp"
#include "heap/deadline.hpp"

namespace oocdnn::heap {

// An allocation that the runtime makes to steer the allocator, or its release.
struct Act {
  int64_t group = 0;  // in which it does that, after the group's leading ends
  int64_t address = 0;
  int64_t bytes = 0;  // 0: it is given back
};

// One request of a group: an allocation or its end.
struct Request {
  bool begins = false;  // an allocation, wanted at the interval's address; else the end of one
  Interval interval;
};

// A group of requests, and what of the free intervals in front of it is open to them.
struct Steered {
  bool steers = false;  // whether there may be acts; else everything is given back here
  std::vector<Interval> frees;
  std::vector<Request> requests;
  Divided divided;  // nothing is to be taken where `taken` is empty
};

// The acts of a step, in order. It begins with these free intervals; those in the ranges can be
// taken, but none of at most `least` bytes, which serve no request either. Once the deadline has
// passed there may be more acts than are needed.
std::vector<Act> ActsOf(std::span<const Steered> groups, const Arena& arena,
                        std::span<const Interval> ranges, int64_t least, Deadline* deadline);

}  // namespace oocdnn::heap
