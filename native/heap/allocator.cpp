#include "heap/allocator.hpp"

#include <algorithm>

namespace oocdnn::heap {

// A range of addresses whose blocks are neighbours.
struct Segment {
  int64_t address;
  bool small;
  bool expandable;
  Block* first;
};

namespace {

constexpr int64_t kMib = int64_t{1} << 20;
constexpr int64_t kAlignment = 512;
constexpr int64_t kSmallSegment = 2 * kMib, kMediumSegment = 20 * kMib, kSegmentRound = 2 * kMib;
constexpr int64_t kLeastLarge = 10 * kMib;       // from here on a request has its own segment
constexpr int64_t kSpace = int64_t{1} << 44;     // addresses of an expandable segment
constexpr int64_t kFirstEnd = int64_t{1} << 50;  // of addresses, where nothing is in use
constexpr int64_t kLastEnd = int64_t{1} << 62;   // no segment begins behind it
constexpr int64_t kMostPage = int64_t{1} << 40;

int64_t Up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

bool IsPage(int64_t page, int64_t small_bytes) {
  return page > small_bytes && page <= kMostPage && page % kAlignment == 0;
}

// True if a piece and the next piece of its pool belong to one segment.
bool IsOneSegment(const Piece& a, const Piece& b) {
  if (a.expandable != b.expandable || a.small != b.small) return false;
  return a.expandable || (a.segment == b.segment && a.address + a.bytes == b.address);
}

// Address at which a request for unmapped memory begins: that of the free block in front of it.
int64_t BeginOf(const Block& block) {
  const bool grows = block.prev != nullptr && block.prev->state == State::kFree;
  return grows ? block.prev->address : block.address;
}

// Bytes that a free block can grow to, over the unmapped block behind it.
int64_t Possible(const Block& block) {
  const bool grows = block.next != nullptr && block.next->state == State::kUnmapped;
  return block.bytes + (grows ? block.next->bytes : 0);
}

}  // namespace

int64_t Rounded(int64_t bytes) { return std::max(Up(bytes, kAlignment), kAlignment); }

Status CheckBytes(int64_t bytes) {
  if (bytes >= 0 && bytes <= kMostBytes) return {};
  return Error(Code::kInvalidProblem, "a request cannot be for %lld bytes; 0 to 2^43 are possible",
               static_cast<long long>(bytes));
}

bool Rules::IsSmall(int64_t bytes) const { return Rounded(bytes) <= small_bytes; }

Status Check(const Heap& heap) {
  const Rules& rules = heap.rules;
  const bool sizes = rules.small_bytes >= kAlignment && rules.small_bytes <= kSmallSegment &&
                     rules.small_bytes % kAlignment == 0;
  if (!sizes || !IsPage(rules.small_page, rules.small_bytes) ||
      !IsPage(rules.large_page, rules.small_bytes)) {
    return Error(Code::kInvalidProblem,
                 "small requests of %lld bytes and pages of %lld and %lld are not possible",
                 static_cast<long long>(rules.small_bytes),
                 static_cast<long long>(rules.small_page),
                 static_cast<long long>(rules.large_page));
  }
  int64_t end = 0;
  for (const Piece& one : heap.pieces) {
    const bool aligned = one.address % kAlignment == 0 && one.bytes % kAlignment == 0;
    if (!aligned || one.address < end || one.bytes <= 0 || one.bytes > kMostBytes ||
        one.address > kMostAddress) {
      return Error(Code::kInvalidProblem,
                   "a block of %lld bytes at address %lld, behind one that ends at %lld, is not "
                   "possible; both are multiples of 512, and blocks are in order of address",
                   static_cast<long long>(one.bytes), static_cast<long long>(one.address),
                   static_cast<long long>(end));
    }
    end = one.address + one.bytes;
  }
  return {};
}

Piece PieceOf(const Block& block) {
  const Segment& segment = *block.segment;
  return {block.address, block.bytes,        segment.address,
          segment.small, segment.expandable, block.state};
}

Allocator::Allocator(const Heap& heap)
    : rules_(heap.rules), expandable_(heap.expandable), end_(kFirstEnd) {
  if (!heap.pieces.empty()) end_ = heap.pieces.back().address + heap.pieces.back().bytes + kSpace;
  std::vector<Piece> mapped = heap.pieces;
  std::erase_if(mapped, [](const Piece& one) { return one.state == State::kUnmapped; });
  const auto rank = [](const Piece& one) { return 2 * (one.expandable ? 0 : 1) + one.small; };
  std::stable_sort(mapped.begin(), mapped.end(),
                   [&](const Piece& a, const Piece& b) { return rank(a) < rank(b); });
  for (size_t begin = 0; begin < mapped.size();) {
    size_t stop = begin + 1;
    while (stop < mapped.size() && IsOneSegment(mapped[stop - 1], mapped[stop])) ++stop;
    Adopt(std::span(mapped).subspan(begin, stop - begin));
    begin = stop;
  }
}

Allocator::~Allocator() = default;

// The blocks of one segment, with those that are not mapped between them and, of an expandable one,
// behind them.
void Allocator::Adopt(std::span<const Piece> pieces) {
  const Piece& first = pieces.front();
  segments_.push_back(
      std::make_unique<Segment>(Segment{first.address, first.small, first.expandable, nullptr}));
  Segment* segment = segments_.back().get();
  Block* last = nullptr;
  const auto put = [&](int64_t address, int64_t bytes, State state) {
    Block* made =
        last == nullptr ? Make(address, bytes, segment, state) : MakeBehind(last, bytes, state);
    if (last == nullptr) segment->first = made;
    if (state != State::kUsed) {
      Merge(made);
      Put(made);
    }
    last = made;
  };
  int64_t address = first.address;
  for (const Piece& one : pieces) {
    if (one.address > address) put(address, one.address - address, State::kUnmapped);
    put(one.address, one.bytes, one.state);
    address = one.address + one.bytes;
    PoolOf(one.small).reserved += one.bytes;
    if (one.state == State::kUsed) allocated_ += one.bytes;
  }
  if (first.expandable) put(address, kSpace, State::kUnmapped);
}

int64_t Allocator::Base() const {
  int64_t base = end_;
  for (const auto& one : segments_) {
    if (one->expandable && !one->small) base = std::min(base, one->address);
  }
  return base;
}

std::vector<Piece> Allocator::Pieces() const {
  std::vector<Piece> found;
  for (const auto& segment : segments_) {
    for (const Block* block = segment->first; block != nullptr; block = block->next) {
      found.push_back(PieceOf(*block));
    }
  }
  std::sort(found.begin(), found.end(),
            [](const Piece& a, const Piece& b) { return a.address < b.address; });
  return found;
}

std::vector<Block*> Allocator::Used() const {
  std::vector<Block*> found;
  for (const auto& segment : segments_) {
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->state == State::kUsed) found.push_back(block);
    }
  }
  std::sort(found.begin(), found.end(), ByAddress());
  return found;
}

Totals Allocator::totals() const {
  return {allocated_, pools_[1].reserved, pools_[0].reserved, Base()};
}

Result<Block*> Allocator::Allocate(int64_t bytes) {
  const int64_t size = Rounded(bytes);
  const bool small = rules_.IsSmall(bytes);
  Block* block = Best(small, size);
  if (block != nullptr) {
    Take(block);
  } else {
    block = expandable_ ? Expanded(small, size) : MakeSegment(small, size, false);
    if (block == nullptr) {
      return Error(Code::kOutOfMemory, "no addresses are left for a block of %lld bytes",
                   static_cast<long long>(size));
    }
  }
  const int64_t rest = block->bytes - size;
  if (rest >= kAlignment && (small || expandable_ || rest > rules_.small_bytes)) {
    block->bytes = size;
    Put(MakeBehind(block, rest, State::kFree));
  }
  block->state = State::kUsed;
  allocated_ += block->bytes;
  return block;
}

void Allocator::Free(Block* block) {
  allocated_ -= block->bytes;
  block->state = State::kFree;
  Merge(block);
  Put(block);
}

void Allocator::Trim() {
  for (Pool& pool : pools_) {
    for (Block* block : std::vector<Block*>(pool.free.begin(), pool.free.end())) {
      if (block->segment->expandable) {
        Unmap(block);
      } else if (block->prev == nullptr && block->next == nullptr) {
        Take(block);
        pool.reserved -= block->bytes;
        std::erase_if(segments_, [&](const auto& one) { return one.get() == block->segment; });
        Drop(block);
      }
    }
  }
}

Result<std::vector<int64_t>> Allocator::Fill(int64_t end) {
  if (!expandable_ || end > Base() + kMostBytes) {
    return Error(Code::kInvalidProblem,
                 "memory can be mapped up to address %lld of expandable segments, not to %lld",
                 static_cast<long long>(expandable_ ? Base() + kMostBytes : 0),
                 static_cast<long long>(end));
  }
  std::vector<Block*> made;
  const Status filled = Fill(end, &made);
  std::vector<int64_t> sizes;
  sizes.reserve(made.size());
  for (const Block* block : made) sizes.push_back(block->bytes);
  for (Block* block : made) Free(block);
  OOC_TRY(filled);
  return sizes;
}

// Each time what is not mapped at the lowest address, with the free block in front of it.
Status Allocator::Fill(int64_t end, std::vector<Block*>* made) {
  for (;;) {
    int64_t bytes = rules_.large_page;
    if (PoolOf(false).unmapped.empty()) {
      if (Base() >= end) return {};
    } else {
      const Block* block = FirstUnmapped();
      if (block == nullptr || block->address >= end) return {};
      const int64_t stop = std::min(block->address + block->bytes, end);
      bytes = std::clamp(stop - BeginOf(*block), rules_.small_bytes + 1, kMostBytes);
    }
    // A free block that would serve it is taken whole, so that there are few requests.
    if (const Block* free = Best(false, Rounded(bytes))) bytes = free->bytes;
    OOC_ASSIGN(Block* const block, Allocate(bytes));
    made->push_back(block);
  }
}

// The first block of the large pool that is not mapped and that a request can take.
const Block* Allocator::FirstUnmapped() const {
  for (const Block* block : pools_[0].unmapped) {
    const int64_t room = block->address + block->bytes - BeginOf(*block);
    if (room >= rules_.small_bytes + kAlignment) return block;
  }
  return nullptr;
}

// Blocks and their lists.

Allocator::Pool& Allocator::PoolOf(const Block& block) { return PoolOf(block.segment->small); }

int64_t Allocator::PageOf(const Block& block) const {
  return block.segment->small ? rules_.small_page : rules_.large_page;
}

void Allocator::Put(Block* block) {
  Pool& pool = PoolOf(*block);
  if (block->state == State::kFree) {
    pool.free.insert(block);
  } else {
    pool.unmapped.insert(block);
  }
}

void Allocator::Take(Block* block) {
  Pool& pool = PoolOf(*block);
  if (block->state == State::kFree) {
    pool.free.erase(block);
  } else {
    pool.unmapped.erase(block);
  }
}

Block* Allocator::Make(int64_t address, int64_t bytes, Segment* segment, State state) {
  if (spare_.empty()) spare_.push_back(blocks_.emplace_back(std::make_unique<Block>()).get());
  Block* block = spare_.back();
  spare_.pop_back();
  *block = {address, bytes, segment, nullptr, nullptr, state};
  return block;
}

Block* Allocator::MakeBehind(Block* before, int64_t bytes, State state) {
  Block* block = Make(before->address + before->bytes, bytes, before->segment, state);
  block->prev = before;
  block->next = before->next;
  if (before->next != nullptr) before->next->prev = block;
  before->next = block;
  return block;
}

void Allocator::Drop(Block* block) { spare_.push_back(block); }

// Merges a block that is in no list with neighbours that are free, or unmapped, as it is.
void Allocator::Merge(Block* block) {
  Block* before = block->prev;
  if (before != nullptr && before->state == block->state) {
    Take(before);
    block->address = before->address;
    block->bytes += before->bytes;
    block->prev = before->prev;
    (before->prev != nullptr ? before->prev->next : block->segment->first) = block;
    Drop(before);
  }
  Block* after = block->next;
  if (after != nullptr && after->state == block->state) {
    Take(after);
    block->bytes += after->bytes;
    block->next = after->next;
    if (after->next != nullptr) after->next->prev = block;
    Drop(after);
  }
}

// The free block that a request takes; that in front of addresses that are not mapped counts as
// long as it can become. Null where none holds it.
Block* Allocator::Best(bool small, int64_t bytes) {
  const auto& free = PoolOf(small).free;
  Block least;
  least.bytes = bytes;
  auto place = free.lower_bound(&least);
  if (place == free.end()) return nullptr;
  Block* block = *place;
  if (!expandable_ || !block->segment->expandable) return block;
  for (++place; place != free.end() && Possible(**place) < Possible(*block); ++place) {
    block = *place;
  }
  return block;
}

// Memory from the driver.

// The whole of a new segment, in no list but, where it is not mapped, that of those.
Block* Allocator::MakeSegment(bool small, int64_t bytes, bool expandable) {
  if (end_ > kLastEnd) return nullptr;
  int64_t whole = kSmallSegment;
  if (expandable) {
    whole = kSpace;
  } else if (!small) {
    whole = bytes < kLeastLarge ? kMediumSegment : Up(bytes, kSegmentRound);
  }
  segments_.push_back(std::make_unique<Segment>(Segment{end_, small, expandable, nullptr}));
  Segment* segment = segments_.back().get();
  segment->first = Make(end_, whole, segment, expandable ? State::kUnmapped : State::kFree);
  end_ += whole;
  if (expandable) {
    Put(segment->first);
  } else {
    PoolOf(small).reserved += whole;
  }
  return segment->first;
}

// At the lowest address where free blocks and addresses that are not mapped hold it.
Block* Allocator::Expanded(bool small, int64_t bytes) {
  Block* block = Candidate(small, bytes);
  if (block == nullptr) return nullptr;
  if (block->state == State::kUnmapped) Map(block, std::min(block->bytes, bytes));
  while (block->bytes < bytes) {
    Block* following = block->next;
    Map(following, std::min(following->bytes, bytes - block->bytes));
    block = following;
  }
  Take(block);
  return block;
}

Block* Allocator::Candidate(bool small, int64_t bytes) {
  for (Block* first : PoolOf(small).unmapped) {
    if (first->prev != nullptr && first->prev->state != State::kUsed) first = first->prev;
    int64_t found = 0;
    for (const Block* block = first; block != nullptr && found < bytes; block = block->next) {
      if (block->state == State::kUsed) break;
      found += block->bytes;
    }
    if (found >= bytes) return first;
  }
  return MakeSegment(small, bytes, true);
}

// Maps pages at the beginning of a block, for so many bytes.
void Allocator::Map(Block* block, int64_t bytes) {
  const int64_t offset = block->address - block->segment->address;
  const int64_t mapped = std::min(Up(offset + bytes, PageOf(*block)) - offset, block->bytes);
  Take(block);
  if (mapped < block->bytes) {
    const int64_t rest = block->bytes - mapped;
    block->bytes = mapped;
    Put(MakeBehind(block, rest, State::kUnmapped));
  }
  block->state = State::kFree;
  Merge(block);
  Put(block);
  PoolOf(*block).reserved += mapped;
}

// Gives the whole pages of a free block back.
void Allocator::Unmap(Block* block) {
  const int64_t page = PageOf(*block), base = block->segment->address;
  const int64_t end = block->address + block->bytes;
  const int64_t first = Up(block->address - base, page) + base;
  const int64_t last = (end - base) / page * page + base;
  if (first >= last) return;
  Take(block);
  if (last < end) {
    block->bytes = last - block->address;
    Put(MakeBehind(block, end - last, State::kFree));
  }
  if (block->address < first) {
    block->bytes = first - block->address;
    Block* pages = MakeBehind(block, last - first, State::kFree);
    Put(block);
    block = pages;
  }
  block->state = State::kUnmapped;
  Merge(block);
  Put(block);
  PoolOf(*block).reserved -= last - first;
}

}  // namespace oocdnn::heap
