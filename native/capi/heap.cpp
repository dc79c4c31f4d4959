// The C functions of the simulated caching allocator.
#include <cmath>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/process_lock.hpp"
#include "base/thread.hpp"
#include "capi/arrays.hpp"
#include "capi/guard.hpp"
#include "capi/oocdnn.h"
#include "heap/allocator.hpp"
#include "heap/requests.hpp"
#include "heap/steering.hpp"
#include "heap/trimming.hpp"

struct oocdnn_allocator {
  explicit oocdnn_allocator(const oocdnn::heap::Heap& heap) : allocator(heap) {
    for (oocdnn::heap::Block* block : allocator.Used()) used.emplace(block->address, block);
  }

  oocdnn::ProcessLock turn;
  oocdnn::heap::Allocator allocator;
  std::unordered_map<int64_t, oocdnn::heap::Block*> used;  // by address
};

namespace {

using namespace oocdnn;  // NOLINT: this file is a C face of that namespace

static_assert(static_cast<int>(heap::State::kFree) == OOCDNN_BLOCK_STATE_FREE);
static_assert(static_cast<int>(heap::State::kUsed) == OOCDNN_BLOCK_STATE_USED);
static_assert(static_cast<int>(heap::State::kUnmapped) == OOCDNN_BLOCK_STATE_UNMAPPED);

Result<heap::Heap> HeapOf(const oocdnn_heap* given) {
  OOC_TRY(Need(given, "the heap"));
  OOC_ASSIGN(const auto blocks, ArrayOf(given->blocks, given->block_count, "the array of blocks"));
  heap::Heap made;
  made.expandable = given->expandable != 0;
  made.rules = {given->small_bytes, given->small_page, given->large_page};
  for (const oocdnn_heap_block& one : blocks) {
    if (one.state < OOCDNN_BLOCK_STATE_FREE || one.state > OOCDNN_BLOCK_STATE_UNMAPPED) {
      return Error(Code::kInvalidProblem, "there is no state %d of a block; 0, 1 and 2 are",
                   one.state);
    }
    if (one.state == OOCDNN_BLOCK_STATE_UNMAPPED) continue;
    made.pieces.push_back({one.address, one.bytes, one.segment, one.small != 0, one.expandable != 0,
                           static_cast<heap::State>(one.state)});
  }
  OOC_TRY(heap::Check(made));
  return made;
}

Result<heap::Requests> RequestsOf(const oocdnn_heap_step* given) {
  OOC_TRY(Need(given, "the requests"));
  OOC_ASSIGN(const auto items, ArrayOf(given->items, given->item_count, "the array of items"));
  OOC_ASSIGN(const auto groups, ArrayOf(given->groups, given->group_count, "that of groups"));
  OOC_ASSIGN(const auto carried,
             ArrayOf(given->carried, given->carried_count, "that of carried ones"));
  OOC_ASSIGN(const auto persistent,
             ArrayOf(given->persistent, given->persistent_count, "that of persistent addresses"));
  heap::Requests made;
  made.items.reserve(items.size());
  for (const oocdnn_heap_item& one : items) made.items.push_back({one.number, one.bytes});
  for (const oocdnn_heap_group& one : groups) {
    made.groups.push_back({one.items, one.frees, one.steers != 0});
  }
  for (const oocdnn_heap_item& one : carried) made.carried.push_back({one.number, one.bytes});
  made.persistent.assign(persistent.begin(), persistent.end());
  OOC_TRY(heap::Prepare(&made));
  return made;
}

oocdnn_heap_block BlockOf(const heap::Piece& one) {
  return {one.address,
          one.bytes,
          one.segment,
          one.small ? 1 : 0,
          one.expandable ? 1 : 0,
          static_cast<int32_t>(one.state)};
}

oocdnn_heap_totals TotalsOf(const heap::Totals& totals) {
  return {totals.allocated, totals.reserved_small, totals.reserved_large, totals.base};
}

heap::Progress ProgressOf(oocdnn_progress progress, void* user) {
  return [=](int64_t walks) {
    if (progress == nullptr) return true;
    const Uncancelled::Lifted lifted;
    return progress(user, walks, heap::kWalks) == 0;
  };
}

// `body` when the allocator has no other call.
template <class Body>
oocdnn_status InTurn(oocdnn_allocator* allocator, const Body& body) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(allocator, "the allocator"));
    const std::lock_guard turn(allocator->turn);
    return body();
  });
}

}  // namespace

oocdnn_status oocdnn_create_allocator(const oocdnn_heap* heap, oocdnn_allocator** allocator) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(allocator, "the place for the allocator"));
    OOC_ASSIGN(const heap::Heap made, HeapOf(heap));
    *allocator = std::make_unique<oocdnn_allocator>(made).release();
    return {};
  });
}

void oocdnn_destroy_allocator(oocdnn_allocator* allocator) { delete allocator; }

oocdnn_status oocdnn_allocate_block(oocdnn_allocator* allocator, int64_t bytes,
                                    oocdnn_heap_block* block) {
  return InTurn(allocator, [&]() -> Status {
    OOC_TRY(Need(block, "the place for the block"));
    OOC_TRY(heap::CheckBytes(bytes));
    OOC_ASSIGN(heap::Block* const made, allocator->allocator.Allocate(bytes));
    allocator->used.emplace(made->address, made);
    *block = BlockOf(heap::PieceOf(*made));
    return {};
  });
}

oocdnn_status oocdnn_free_block(oocdnn_allocator* allocator, int64_t address) {
  return InTurn(allocator, [&]() -> Status {
    const auto known = allocator->used.find(address);
    if (known == allocator->used.end()) {
      return Error(Code::kInvalidProblem, "no block in use is at address %lld",
                   static_cast<long long>(address));
    }
    allocator->allocator.Free(known->second);
    allocator->used.erase(known);
    return {};
  });
}

oocdnn_status oocdnn_trim_heap(oocdnn_allocator* allocator) {
  return InTurn(allocator, [&]() -> Status {
    allocator->allocator.Trim();
    return {};
  });
}

oocdnn_status oocdnn_fill_heap(oocdnn_allocator* allocator, int64_t end, const int64_t** sizes,
                               int64_t* length) {
  return InTurn(allocator, [&]() -> Status {
    static thread_local HandedOut<std::vector<int64_t>> handed_out;
    OOC_TRY(Need(sizes, "the place for the sizes"));
    OOC_TRY(Need(length, "the place for the number of sizes"));
    std::vector<int64_t>& made = handed_out.Next();
    OOC_ASSIGN(made, allocator->allocator.Fill(end));
    *sizes = made.data();
    *length = std::ssize(made);
    return {};
  });
}

oocdnn_status oocdnn_heap_sums(oocdnn_allocator* allocator, oocdnn_heap_totals* totals) {
  return InTurn(allocator, [&]() -> Status {
    OOC_TRY(Need(totals, "the place for the totals"));
    *totals = TotalsOf(allocator->allocator.totals());
    return {};
  });
}

oocdnn_status oocdnn_heap_blocks(oocdnn_allocator* allocator, const oocdnn_heap_block** blocks,
                                 int64_t* length) {
  return InTurn(allocator, [&]() -> Status {
    static thread_local HandedOut<std::vector<oocdnn_heap_block>> handed_out;
    OOC_TRY(Need(blocks, "the place for the blocks"));
    OOC_TRY(Need(length, "the place for the number of blocks"));
    std::vector<oocdnn_heap_block>& made = handed_out.Next();
    made.clear();
    for (const heap::Piece& one : allocator->allocator.Pieces()) made.push_back(BlockOf(one));
    *blocks = made.data();
    *length = std::ssize(made);
    return {};
  });
}

oocdnn_status oocdnn_simulate_heap(const oocdnn_heap* heap, const oocdnn_heap_step* requests,
                                   oocdnn_heap_totals* totals) {
  return Guard([&]() -> Status {
    OOC_TRY(Need(totals, "the place for the totals"));
    OOC_ASSIGN(const heap::Heap held, HeapOf(heap));
    OOC_ASSIGN(const heap::Requests made, RequestsOf(requests));
    OOC_ASSIGN(const heap::Totals found, heap::Simulate(held, made));
    *totals = TotalsOf(found);
    return {};
  });
}

oocdnn_status oocdnn_steer_heap(const oocdnn_heap* heap, const oocdnn_heap_step* requests,
                                const oocdnn_steering_search* search, oocdnn_progress progress,
                                void* progress_user, oocdnn_steering* steering) {
  return Guard([&]() -> Status {
    static thread_local HandedOut<std::vector<oocdnn_heap_act>> handed_out;
    OOC_TRY(Need(search, "the search"));
    OOC_TRY(Need(steering, "the place for the steering"));
    OOC_TRY(NeedLimit(search->limit));
    if (std::isnan(search->seconds)) {
      return Error(Code::kInvalidProblem, "a search of %g s is not possible", search->seconds);
    }
    OOC_ASSIGN(const heap::Heap held, HeapOf(heap));
    OOC_ASSIGN(const heap::Requests made, RequestsOf(requests));
    const heap::SteeringOptions options{search->limit, static_cast<uint64_t>(search->seed),
                                        search->seconds};
    OOC_ASSIGN(const std::optional<heap::Steering> found,
               heap::Steer(held, made, options, ProgressOf(progress, progress_user)));
    *steering = {};
    if (!found) return {};
    std::vector<oocdnn_heap_act>& acts = handed_out.Next();
    acts.clear();
    for (const heap::Act& act : found->acts) acts.push_back({act.group, act.address, act.bytes});
    *steering = {acts.data(), std::ssize(acts), found->end, found->reserved, 1};
    return {};
  });
}

oocdnn_status oocdnn_find_trims(const oocdnn_heap* heap, const oocdnn_heap_step* requests,
                                int64_t limit, oocdnn_trimming* trimming) {
  return Guard([&]() -> Status {
    static thread_local HandedOut<std::vector<oocdnn_heap_trim>> handed_out;
    OOC_TRY(Need(trimming, "the place for the trims"));
    OOC_TRY(NeedLimit(limit));
    OOC_ASSIGN(const heap::Heap held, HeapOf(heap));
    OOC_ASSIGN(const heap::Requests made, RequestsOf(requests));
    OOC_ASSIGN(const std::optional<heap::Trimming> found, heap::FindTrims(held, made, limit));
    *trimming = {};
    if (!found) return {};
    std::vector<oocdnn_heap_trim>& trims = handed_out.Next();
    trims.clear();
    for (const heap::Trim& one : found->trims) trims.push_back({one.group, one.bytes});
    *trimming = {trims.data(), std::ssize(trims), found->reserved, 1};
    return {};
  });
}
