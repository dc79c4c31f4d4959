#include "heap/occupied.hpp"

#include <algorithm>
#include <utility>

namespace oocdnn::heap {
namespace {

constexpr size_t kPiece = 128;  // most spans of a piece

}  // namespace

void Occupied::List::Add(const Span& span) {
  const auto by_address = [](const Span& a, const Span& b) { return a.address < b.address; };
  auto piece = std::lower_bound(pieces_.begin(), pieces_.end(), span,
                                [](const std::vector<Span>& one, const Span& added) {
                                  return one.back().address <= added.address;
                                });
  if (piece == pieces_.end()) {
    if (pieces_.empty()) pieces_.emplace_back().reserve(kPiece);
    piece = pieces_.end() - 1;
  }
  if (piece->size() == kPiece) {
    const auto middle = piece->begin() + kPiece / 2;
    std::vector<Span> rest;
    rest.reserve(kPiece);
    rest.assign(middle, piece->end());
    piece->erase(middle, piece->end());
    const bool behind = rest.front().address <= span.address;
    piece = pieces_.insert(piece + 1, std::move(rest)) - (behind ? 0 : 1);
  }
  piece->insert(std::upper_bound(piece->begin(), piece->end(), span, by_address), span);
}

// The spans of a list that meet given times, one after the other.
class Occupied::Reader {
 public:
  Reader() = default;
  Reader(const List& list, const Times& times)
      : piece_(list.pieces().data()), last_(piece_ + list.pieces().size()) {
    if (piece_ == last_) return;
    next_ = piece_->data(), end_ = next_ + piece_->size();
    Find(times);
  }

  // Null at the end.
  [[nodiscard]] const Span* now() const { return next_; }
  void Advance(const Times& times) {
    ++next_;
    Find(times);
  }

 private:
  void Find(const Times& times) {
    for (;;) {
      for (; next_ != end_; ++next_) {
        if (times.Meet(*next_)) return;
      }
      if (++piece_ == last_) break;
      next_ = piece_->data(), end_ = next_ + piece_->size();
    }
    next_ = nullptr;
  }

  const std::vector<Span>* piece_ = nullptr;
  const std::vector<Span>* last_ = nullptr;
  const Span* next_ = nullptr;
  const Span* end_ = nullptr;
};

size_t Occupied::Level::PartAt(int32_t moment) const {
  return static_cast<size_t>(std::max(moment, 0) / width);
}

Occupied::Occupied(int32_t moments) {
  for (size_t i = 0; i < levels_.size(); ++i) {
    levels_[i].width = kWidths[i];
    levels_[i].parts.resize(levels_[i].PartAt(moments) + 1);
  }
}

void Occupied::Clear() {
  long_.Clear();
  for (Level& level : levels_) {
    level.all.Clear();
    for (List& part : level.parts) part.Clear();
  }
}

void Occupied::Add(const Span& span) {
  for (Level& level : levels_) {
    if (span.to - span.from > level.width) continue;
    level.all.Add(span);
    const size_t last = level.PartAt(span.to - 1);
    for (size_t part = level.PartAt(span.from); part <= last; ++part) level.parts[part].Add(span);
    return;
  }
  long_.Add(span);
}

int64_t Occupied::Lowest(int64_t base, int64_t bytes, const Times& times) const {
  std::array<Reader, 2 * kWidths.size() + 1> readers{};
  size_t count = 0;
  const auto read = [&](const List& list) {
    readers[count] = Reader(list, times);
    if (readers[count].now() != nullptr) ++count;
  };
  read(long_);
  for (const Level& level : levels_) {
    if (times.before >= 0 || times.to - times.from > level.width) {
      read(level.all);
      continue;
    }
    const size_t first = level.PartAt(times.from), last = level.PartAt(times.to - 1);
    read(level.parts[first]);
    if (last != first) read(level.parts[last]);
  }
  int64_t address = base;
  while (count > 0) {
    Reader* lowest = readers.data();
    for (Reader* one = lowest + 1; one != readers.data() + count; ++one) {
      if (one->now()->address < lowest->now()->address) lowest = one;
    }
    const Span& span = *lowest->now();
    if (span.address - address >= bytes) break;
    address = std::max(address, span.end);
    lowest->Advance(times);
    if (lowest->now() == nullptr) *lowest = readers[--count];
  }
  return address;
}

}  // namespace oocdnn::heap
