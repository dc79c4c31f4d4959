// The functions of the simulated allocator.
#include <utility>

#include "testing/fuzz_capi/session.hpp"

namespace oocdnn::fuzz_capi {
namespace {

constexpr int64_t kMib = int64_t{1} << 20, kBase = int64_t{1} << 47;

int64_t DrawRequest(Random* random) {
  switch (random->Below(20)) {
    case 0: return random->Integer();
    case 1: return random->Between(kMib - 1024, kMib + 1024);
    default: return random->Between(1, random->Chance(30) ? 4096 : 64 * kMib);
  }
}

int32_t DrawFlag(Random* random) { return random->Chance(50) ? 1 : 0; }

// A heap whose blocks have exactly their array, on the heap.
struct Heap {
  explicit Heap(Random* random);

  std::vector<oocdnn_heap_block> blocks;
  oocdnn_heap given{};
  bool odd = false;  // its pools may have addresses in common
};

Heap::Heap(Random* random) {
  for (const int32_t small : {1, 0}) {
    int64_t address = small != 0 ? kBase / 2 : kBase, segment = address;
    const int32_t expandable = DrawFlag(random);
    for (auto count = random->Between(0, 6); count > 0; --count) {
      if (random->Chance(30)) segment = address += random->Between(0, 3) * 20 * kMib;
      const int64_t bytes = 512 * random->Between(1, 80000);
      blocks.push_back({address, bytes, segment, small, expandable, DrawFlag(random)});
      address += bytes;
    }
  }
  if (!blocks.empty() && random->Chance(10)) {
    oocdnn_heap_block& one = blocks[random->Below(blocks.size())];
    int64_t* const fields[] = {&one.address, &one.bytes, &one.segment};
    *fields[random->Below(3)] = random->Integer();
    if (random->Chance(50)) one.state = random->Int();
    odd = true;
  }
  given = {blocks.data(),
           static_cast<int64_t>(blocks.size()),
           kMib,
           2 * kMib,
           random->Chance(2) ? random->Integer() : 20 * kMib,
           DrawFlag(random)};
}

// What an allocator tells of itself adds up.
void ExpectSums(oocdnn_allocator* allocator) {
  const oocdnn_heap_block* blocks = nullptr;
  int64_t length = 0;
  oocdnn_heap_totals totals{};
  Expect(oocdnn_heap_blocks(allocator, &blocks, &length) == OOCDNN_OK, "no blocks");
  Expect(oocdnn_heap_sums(allocator, &totals) == OOCDNN_OK, "no totals");
  int64_t used = 0, reserved = 0, end = 0;
  for (const oocdnn_heap_block* block = blocks; block != blocks + length; ++block) {
    Expect(block->address >= end && block->bytes > 0, "blocks overlap");
    end = block->address + block->bytes;
    if (block->state == OOCDNN_BLOCK_STATE_USED) used += block->bytes;
    if (block->state != OOCDNN_BLOCK_STATE_UNMAPPED) reserved += block->bytes;
  }
  Expect(used == totals.allocated, "other bytes in use");
  Expect(reserved == totals.reserved_small + totals.reserved_large, "other bytes reserved");
}

void CallAllocator(Random* random, const Heap& heap) {
  oocdnn_allocator* allocator = nullptr;
  Now("oocdnn_create_allocator");
  const bool none = random->Chance(2);
  if (Answered(oocdnn_create_allocator(none ? nullptr : &heap.given, &allocator)) != OOCDNN_OK) {
    return;
  }
  std::vector<int64_t> live;
  for (int call = 0; call < 30; ++call) {
    oocdnn_heap_block block{};
    if (random->Chance(50)) {
      Now("oocdnn_allocate_block");
      const int64_t bytes = DrawRequest(random);
      if (Answered(oocdnn_allocate_block(allocator, bytes, &block)) != OOCDNN_OK) continue;
      Expect(block.bytes >= bytes && block.state == OOCDNN_BLOCK_STATE_USED, "a short block");
      live.push_back(block.address);
    } else if (!live.empty() && random->Chance(90)) {
      std::swap(live[random->Below(live.size())], live.back());
      Now("oocdnn_free_block");
      const bool freed = oocdnn_free_block(allocator, live.back()) == OOCDNN_OK;
      Expect(freed || heap.odd, "a block is not freed");
      const bool again = oocdnn_free_block(allocator, live.back()) == OOCDNN_OK;
      Expect(!again || heap.odd, "a block is freed twice");
      live.pop_back();
    } else if (random->Chance(50)) {
      Now("oocdnn_trim_heap");
      Answered(oocdnn_trim_heap(allocator));
    } else {
      const int64_t* sizes = nullptr;
      int64_t length = 0;
      const int64_t end = kBase + random->Between(0, 4096) * kMib;
      Now("oocdnn_fill_heap");
      Answered(oocdnn_fill_heap(allocator, random->Chance(2) ? random->Integer() : end, &sizes,
                                &length));
    }
  }
  if (!heap.odd) ExpectSums(allocator);
  oocdnn_destroy_allocator(allocator);
}

// A step whose arrays have exactly their size, on the heap.
struct Requests {
  Requests(Random* random, const Heap& heap);

  std::vector<oocdnn_heap_item> items, carried;
  std::vector<oocdnn_heap_group> groups;
  std::vector<int64_t> persistent;
  oocdnn_heap_step given{};
};

Requests::Requests(Random* random, const Heap& heap) {
  for (const oocdnn_heap_block& block : heap.blocks) {
    if (random->Chance(50)) persistent.push_back(block.address);
    if (random->Chance(50)) carried.push_back({random->Integer(), block.bytes});
  }
  for (auto count = random->Between(0, 15); count > 0; --count) {
    const int64_t frees = random->Between(0, 1), others = random->Between(0, 4);
    groups.push_back({frees + others, frees, DrawFlag(random)});
    for (int64_t i = 0; i < frees + others; ++i) {
      const bool ends = i < frees || random->Chance(50);
      items.push_back({random->Integer(), ends ? 0 : DrawRequest(random)});
    }
  }
  if (!groups.empty() && random->Chance(2)) groups.back().items = random->Integer();
  if (!groups.empty() && random->Chance(2)) groups.back().frees = random->Integer();
  given = {items.data(),
           groups.data(),
           carried.data(),
           persistent.data(),
           static_cast<int64_t>(items.size()),
           random->Chance(10) ? 0 : static_cast<int64_t>(groups.size()),
           static_cast<int64_t>(carried.size()),
           static_cast<int64_t>(persistent.size())};
}

int64_t ReservedOf(const oocdnn_heap_totals& totals) {
  return totals.reserved_small + totals.reserved_large;
}

void CallTrims(const Heap& heap, const Requests& requests, int64_t limit) {
  oocdnn_trimming trimming{};
  Now("oocdnn_find_trims");
  const oocdnn_status status = oocdnn_find_trims(&heap.given, &requests.given, limit, &trimming);
  if (Answered(status) != OOCDNN_OK || trimming.found == 0) return;
  int64_t next = 0;
  for (const oocdnn_heap_trim* trim = trimming.trims; trim != trimming.trims + trimming.trim_count;
       ++trim) {
    Expect(next <= trim->group && trim->group < requests.given.group_count, "trims out of order");
    next = trim->group + 1;
    Expect(requests.groups[static_cast<size_t>(trim->group)].steers != 0, "a trim anywhere");
    Expect(trim->bytes >= 0, "fewer than no bytes");
  }
  Expect(trimming.reserved <= limit, "more than the limit");
}

void CallSteps(Random* random, const Heap& heap) {
  const Requests requests(random, heap);
  const oocdnn_heap_step* const step = random->Chance(2) ? nullptr : &requests.given;
  oocdnn_heap_totals totals{};
  Now("oocdnn_simulate_heap");
  if (Answered(oocdnn_simulate_heap(&heap.given, step, &totals)) != OOCDNN_OK) return;
  Expect(totals.allocated <= ReservedOf(totals), "more than reserved");
  const int64_t limit = ReservedOf(totals) - random->Between(-1, 4) * 20 * kMib;
  const oocdnn_steering_search search{random->Chance(2) ? random->Integer() : limit,
                                      random->Integer(), random->Chance(2) ? -1.0 : 0.02};
  if (step != nullptr) CallTrims(heap, requests, random->Chance(2) ? random->Integer() : limit);
  oocdnn_steering steering{};
  Now("oocdnn_steer_heap");
  const oocdnn_status status = oocdnn_steer_heap(
      &heap.given, step, random->Chance(2) ? nullptr : &search, nullptr, nullptr, &steering);
  if (Answered(status) != OOCDNN_OK || steering.found == 0) return;
  int64_t group = 0;
  for (const oocdnn_heap_act* act = steering.acts; act != steering.acts + steering.act_count;
       ++act) {
    Expect(group <= act->group && act->group < requests.given.group_count, "acts out of order");
    group = act->group;
    Expect(requests.groups[static_cast<size_t>(group)].steers != 0, "an act where none may be");
  }
  Expect(steering.reserved <= search.limit || heap.odd, "more than the limit");
}

}  // namespace

void CallHeap(Random* random) {
  const Heap heap(random);
  CallAllocator(random, heap);
  CallSteps(random, heap);
}

}  // namespace oocdnn::fuzz_capi
