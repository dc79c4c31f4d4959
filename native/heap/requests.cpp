#include "heap/requests.hpp"

#include <algorithm>
#include <deque>
#include <unordered_map>

namespace oocdnn::heap {
namespace {

constexpr int kSteps = 2;

}  // namespace

Status Prepare(Requests* requests) {
  std::unordered_map<int64_t, int64_t> numbers;
  for (std::vector<Item>* items : {&requests->carried, &requests->items}) {
    for (Item& item : *items) {
      OOC_TRY(CheckBytes(item.bytes));
      item.number = numbers.emplace(item.number, numbers.size()).first->second;
    }
  }
  std::sort(requests->persistent.begin(), requests->persistent.end());
  return {};
}

Walk::Walk(const Requests& requests, Allocator* allocator)
    : requests_(requests), allocator_(allocator) {
  size_t count = 0;
  for (const std::vector<Item>* items : {&requests.carried, &requests.items}) {
    for (const Item& item : *items) count = std::max(count, static_cast<size_t>(item.number) + 1);
  }
  queues_.resize(count);
  FindLeft();
}

// The blocks that the step before leaves, by the numbers under which this one ends them: those of
// equal size in order of address.
void Walk::FindLeft() {
  const std::vector<int64_t>& persistent = requests_.persistent;
  std::unordered_map<int64_t, std::deque<Block*>> found;
  for (Block* block : allocator_->Used()) {
    if (!std::binary_search(persistent.begin(), persistent.end(), block->address)) {
      found[block->bytes].push_back(block);
    }
  }
  for (const Item& item : requests_.carried) {
    std::deque<Block*>& same = found[Rounded(item.bytes)];
    if (same.empty()) continue;
    queues_[static_cast<size_t>(item.number)].blocks.push_back(same.front());
    same.pop_front();
  }
}

Status Walk::Do(const Item& item) {
  Queue& queue = queues_[static_cast<size_t>(item.number)];
  if (item.bytes != 0) {
    OOC_ASSIGN(Block* const block, allocator_->Allocate(item.bytes));
    queue.blocks.push_back(block);
  } else if (queue.begin < queue.blocks.size()) {
    allocator_->Free(queue.blocks[queue.begin++]);
    if (queue.begin == queue.blocks.size()) queue.blocks.clear(), queue.begin = 0;
  }
  return {};
}

Status Walk::Step() {
  for (const Item& item : requests_.items) OOC_TRY(Do(item));
  return {};
}

Result<Totals> Simulate(const Heap& heap, const Requests& requests) {
  Allocator allocator(heap);
  allocator.Trim();
  Walk walk(requests, &allocator);
  for (int step = 0; step < kSteps; ++step) OOC_TRY(walk.Step());
  return allocator.totals();
}

}  // namespace oocdnn::heap
