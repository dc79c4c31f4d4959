// What a step asks of an allocator, in order, and the bytes that it reserves for that.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "heap/allocator.hpp"
#include "heap/queues.hpp"

namespace oocdnn::heap {

// An allocation; with 0 bytes, the end of the first one of its number that has not ended. Where
// there is none it does nothing.
struct Item {
  int64_t number = 0;
  int64_t bytes = 0;
};

// Items from one point at which something may be done about the allocator to the next.
struct Group {
  int64_t items = 0;
  int64_t frees = 0;    // of these, ends in front of that point
  bool steers = false;  // whether anything may be done
};

// The allocations of a step.
struct Requests {
  std::vector<Item> items;
  std::vector<Group> groups;        // of all items, in order, or none
  std::vector<Item> carried;        // allocations of the step before that this one ends
  std::vector<int64_t> persistent;  // addresses of what outlives every step, ascending
  size_t numbers = 0;               // of items and carried ones, which are below it
};

// Prepares requests: numbers become those from 0 on, persistent addresses are put in order.
// kInvalidProblem where bytes or groups are none that there are.
Status Prepare(Requests* requests);

// The block that the step before left for each carried allocation; null where there is none. Those
// of equal size are in order of address.
std::vector<Block*> FindLeft(const Requests& requests, const Allocator& allocator);

// Makes the requests of step after step in an allocator.
class Walk {
 public:
  // From what the step before left in the allocator on. Requests are as Prepare leaves them.
  Walk(const Requests& requests, Allocator* allocator);

  // kOutOfMemory where the allocator has no more addresses.
  Status Do(const Item& item);
  // All items, one after the other.
  Status Step();

 private:
  const Requests& requests_;
  Allocator* const allocator_;
  Queues<Block*> blocks_;
};

constexpr int kSteps = 2;  // that are simulated: the second begins with what the first leaves

// The totals after these steps from this heap on, whose unused memory is given back first.
Result<Totals> Simulate(const Heap& heap, const Requests& requests);

}  // namespace oocdnn::heap
