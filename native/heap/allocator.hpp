// Simulation of PyTorch's caching allocator for CUDA, for one stream.
//
// The allocator is deterministic: which bytes it takes from the driver follows from the order and
// the sizes of allocations and frees. The rules are those of PyTorch's native backend with its
// default settings, with and without `expandable_segments`.
//
// - Sizes are multiples of 512 bytes. Up to 1 MiB they come from the small pool, above from the
//   large one.
// - A request takes the smallest free block that holds it, of equal ones that of the lowest
//   address; the rest of the block stays free. Free neighbours are one block.
// - Where no free block holds it, a segment is taken from the driver: 2 MiB for the small pool,
//   20 MiB for less than 10 MiB, else the size rounded up to 2 MiB.
// - An expandable segment is a range of addresses for a whole pool. Pages of 2 MiB (small pool) or
//   20 MiB (large pool) are mapped where they are needed, at the lowest addresses where the request
//   fits, beside free blocks that it takes as well.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/status.hpp"

namespace oocdnn::heap {

constexpr int64_t kMostBytes = int64_t{1} << 43;    // of a request
constexpr int64_t kMostAddress = int64_t{1} << 60;  // in use at the beginning

// Sizes that tests have smaller than PyTorch has.
struct Rules {
  int64_t small_bytes = 0;  // largest request of the small pool
  int64_t small_page = 0;   // bytes of a page of an expandable segment of the small pool
  int64_t large_page = 0;   // and of the large one

  [[nodiscard]] bool IsSmall(int64_t bytes) const;
};

// Bytes that a request takes.
int64_t Rounded(int64_t bytes);

// kInvalidProblem where a request for so many bytes is not possible.
Status CheckBytes(int64_t bytes);

enum class State : int32_t { kFree, kUsed, kUnmapped };

// A block as it is given and told.
struct Piece {
  int64_t address = 0;
  int64_t bytes = 0;
  int64_t segment = 0;  // address of its segment
  bool small = false;   // of the small pool
  bool expandable = false;
  State state = State::kFree;
};

// The memory that an allocator holds.
struct Heap {
  std::vector<Piece> pieces;  // in order of address; those that are not mapped are left out
  bool expandable = false;    // whether its segments are
  Rules rules;
};

// kInvalidProblem where pieces overlap, or have no multiples of 512 bytes, or sizes are none that
// there are.
Status Check(const Heap& heap);

struct Segment;

// A range of addresses; neighbours are of the same segment.
struct Block {
  int64_t address = 0;
  int64_t bytes = 0;
  Segment* segment = nullptr;
  Block* prev = nullptr;
  Block* next = nullptr;
  State state = State::kFree;
};

Piece PieceOf(const Block& block);

// Sums over an allocator's blocks.
struct Totals {
  int64_t allocated = 0;                           // bytes of blocks in use
  int64_t reserved_small = 0, reserved_large = 0;  // bytes taken from the driver for each pool
  int64_t base = 0;                                // as Base() tells

  [[nodiscard]] int64_t reserved() const { return reserved_small + reserved_large; }
};

class Allocator {
 public:
  // `heap` is one that Check accepts. The expandable pieces of a pool are one segment.
  explicit Allocator(const Heap& heap);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // A block for a request that CheckBytes accepts; kOutOfMemory where no addresses are left.
  Result<Block*> Allocate(int64_t bytes);
  // `block` is in use, and must not be used afterwards.
  void Free(Block* block);
  // Gives segments and pages without a block in use back to the driver.
  void Trim();
  // Maps the large pool of an allocator with expandable segments up to an address, at most
  // kMostBytes behind Base(), by requests that are freed again; their bytes.
  Result<std::vector<int64_t>> Fill(int64_t end);

  [[nodiscard]] Totals totals() const;
  // Address of the large pool's first expandable segment; of the next one where there is none.
  [[nodiscard]] int64_t Base() const;
  // The blocks in use, in order of address.
  [[nodiscard]] std::vector<Block*> Used() const;
  // All blocks, in order of address.
  [[nodiscard]] std::vector<Piece> Pieces() const;

 private:
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
    }
  };
  struct ByAddress {
    bool operator()(const Block* a, const Block* b) const { return a->address < b->address; }
  };
  struct Pool {
    std::set<Block*, BySize> free;
    std::set<Block*, ByAddress> unmapped;
    int64_t reserved = 0;
  };

  [[nodiscard]] Pool& PoolOf(bool small) { return pools_[small ? 1 : 0]; }
  Pool& PoolOf(const Block& block);
  Status Fill(int64_t end, std::vector<Block*>* made);
  [[nodiscard]] const Block* FirstUnmapped() const;
  [[nodiscard]] int64_t PageOf(const Block& block) const;
  void Put(Block* block);
  void Take(Block* block);
  Block* Make(int64_t address, int64_t bytes, Segment* segment, State state);
  Block* MakeBehind(Block* before, int64_t bytes, State state);
  void Drop(Block* block);
  void Merge(Block* block);
  Block* Best(bool small, int64_t bytes);
  Block* MakeSegment(bool small, int64_t bytes, bool expandable);
  Block* Candidate(bool small, int64_t bytes);
  Block* Expanded(bool small, int64_t bytes);
  void Map(Block* block, int64_t bytes);
  void Unmap(Block* block);
  void Adopt(std::span<const Piece> pieces);

  const Rules rules_;
  const bool expandable_;
  std::array<Pool, 2> pools_;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::vector<std::unique_ptr<Block>> blocks_;  // all that were ever made
  std::vector<Block*> spare_;                   // those of them that are none now
  int64_t allocated_ = 0;
  int64_t end_;  // of addresses in use, where new segments begin
};

}  // namespace oocdnn::heap
