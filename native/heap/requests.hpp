// What a step asks of an allocator, in order, and the bytes that it reserves for that.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "heap/allocator.hpp"

namespace oocdnn::heap {

// An allocation; with 0 bytes, the end of the first one of its number that has not ended. Where
// there is none it does nothing.
struct Item {
  int64_t number = 0;
  int64_t bytes = 0;
};

// The allocations of a step.
struct Requests {
  std::vector<Item> items;
  std::vector<Item> carried;        // allocations of the step before that this one ends
  std::vector<int64_t> persistent;  // addresses of what outlives every step, ascending
};

// Prepares requests: numbers become those from 0 on, persistent addresses are put in order.
// kInvalidProblem where a size is none that there is.
Status Prepare(Requests* requests);

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
  // Blocks of one number, the first ones of which have ended.
  struct Queue {
    std::vector<Block*> blocks;
    size_t begin = 0;
  };

  void FindLeft();

  const Requests& requests_;
  Allocator* const allocator_;
  std::vector<Queue> queues_;
};

// The totals after two steps from this heap on, whose unused memory is given back first. The second
// one begins with what the first leaves.
Result<Totals> Simulate(const Heap& heap, const Requests& requests);

}  // namespace oocdnn::heap
