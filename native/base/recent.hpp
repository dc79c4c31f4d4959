// Recent: what was used last of things that are dear to make.
#pragma once

#include <algorithm>
#include <list>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace oocdnn {

// The way to a key: through all of them, which does for some dozens.
struct ByScan {};

// At most `most` values by their keys; the one whose last use lies back furthest makes room. With a
// `Hash` of keys a value is found as fast among thousands.
template <class Key, class Value, class Hash = ByScan>
class Recent {
 public:
  explicit Recent(size_t most) : most_(most) {}

  // Null where it is not known; else this is a use. Valid until the next Put.
  Value* Find(const Key& key) {
    const auto known = Where(key);
    if (known == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, known);
    return &known->second;
  }

  // Of a key that is not known.
  Value& Put(Key key, Value value) {
    if (full()) Drop();
    entries_.emplace_front(std::move(key), std::move(value));
    if constexpr (kHashed) places_.emplace(entries_.front().first, entries_.begin());
    return entries_.front().second;
  }

  [[nodiscard]] bool full() const { return entries_.size() >= most_; }
  void Clear() {
    entries_.clear();
    if constexpr (kHashed) places_.clear();
  }

 private:
  using Entries = std::list<std::pair<Key, Value>>;
  static constexpr bool kHashed = !std::is_same_v<Hash, ByScan>;
  struct NoPlaces {};

  Entries::iterator Where(const Key& key) {
    if constexpr (kHashed) {
      const auto place = places_.find(key);
      return place == places_.end() ? entries_.end() : place->second;
    } else {
      return std::find_if(entries_.begin(), entries_.end(),
                          [&](const auto& entry) { return entry.first == key; });
    }
  }

  void Drop() {
    if constexpr (kHashed) places_.erase(entries_.back().first);
    entries_.pop_back();
  }

  const size_t most_;
  Entries entries_;  // latest use first
  std::conditional_t<kHashed, std::unordered_map<Key, typename Entries::iterator, Hash>, NoPlaces>
      places_;
};

}  // namespace oocdnn
