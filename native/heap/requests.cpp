#include "heap/requests.hpp"

#include <algorithm>
#include <deque>
#include <unordered_map>

namespace oocdnn::heap {
namespace {

constexpr int64_t kMostInAll = int64_t{1} << 60;  // bytes of a step

Status CheckAll(const Requests& requests) {
  int64_t bytes = 0;
  for (const std::vector<Item>* items : {&requests.carried, &requests.items}) {
    for (const Item& item : *items) {
      OOC_TRY(CheckBytes(item.bytes));
      bytes += Rounded(item.bytes);
      if (bytes > kMostInAll) {
        return Error(Code::kInvalidProblem, "the requests of a step are for more than 2^60 bytes");
      }
    }
  }
  return {};
}

Status CheckGroups(const Requests& requests) {
  size_t next = 0;
  for (const Group& group : requests.groups) {
    const bool possible = group.items >= 0 && group.frees >= 0 && group.frees <= group.items &&
                          static_cast<uint64_t>(group.items) <= requests.items.size() - next;
    const auto leading = static_cast<size_t>(possible ? group.frees : 0);
    const Item* const begin = requests.items.data() + next;
    const bool ends =
        std::all_of(begin, begin + leading, [](const Item& item) { return item.bytes == 0; });
    if (!possible || !ends) {
      return Error(Code::kInvalidProblem,
                   "a group of %lld items of which the first %lld are ends is not possible; %zu "
                   "items are left",
                   static_cast<long long>(group.items), static_cast<long long>(group.frees),
                   requests.items.size() - next);
    }
    next += static_cast<size_t>(group.items);
  }
  if (requests.groups.empty() || next == requests.items.size()) return {};
  return Error(Code::kInvalidProblem, "%zu items are of no group", requests.items.size() - next);
}

}  // namespace

Status Prepare(Requests* requests) {
  OOC_TRY(CheckAll(*requests));
  OOC_TRY(CheckGroups(*requests));
  std::unordered_map<int64_t, int64_t> numbers;
  for (std::vector<Item>* items : {&requests->carried, &requests->items}) {
    for (Item& item : *items) {
      item.number = numbers.emplace(item.number, numbers.size()).first->second;
    }
  }
  requests->numbers = numbers.size();
  std::sort(requests->persistent.begin(), requests->persistent.end());
  return {};
}

std::vector<Block*> FindLeft(const Requests& requests, const Allocator& allocator) {
  const std::vector<int64_t>& persistent = requests.persistent;
  std::unordered_map<int64_t, std::deque<Block*>> passing;  // by size
  for (Block* block : allocator.Used()) {
    if (!std::binary_search(persistent.begin(), persistent.end(), block->address)) {
      passing[block->bytes].push_back(block);
    }
  }
  std::vector<Block*> found;
  for (const Item& item : requests.carried) {
    std::deque<Block*>& same = passing[Rounded(item.bytes)];
    found.push_back(same.empty() ? nullptr : same.front());
    if (!same.empty()) same.pop_front();
  }
  return found;
}

Walk::Walk(const Requests& requests, Allocator* allocator)
    : requests_(requests), allocator_(allocator), blocks_(requests.numbers) {
  const std::vector<Block*> left = FindLeft(requests, *allocator);
  for (size_t place = 0; place < left.size(); ++place) {
    if (left[place] != nullptr) blocks_.Push(requests.carried[place].number, left[place]);
  }
}

Status Walk::Do(const Item& item) {
  if (item.bytes != 0) {
    OOC_ASSIGN(Block* const block, allocator_->Allocate(item.bytes));
    blocks_.Push(item.number, block);
  } else if (const auto block = blocks_.Pop(item.number)) {
    allocator_->Free(*block);
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
