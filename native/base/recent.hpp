// Recent: what was used last of things that are dear to make.
#pragma once

#include <algorithm>
#include <list>
#include <utility>

namespace oocdnn {

// At most `most` values by their keys; the one whose last use lies back furthest makes room.
template <class Key, class Value>
class Recent {
 public:
  explicit Recent(size_t most) : most_(most) {}

  // Null where it is not known; else this is a use. Valid until the next Put.
  const Value* Find(const Key& key) {
    const auto known = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const auto& entry) { return entry.first == key; });
    if (known == entries_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, known);
    return &known->second;
  }

  // Of a key that is not known.
  const Value& Put(Key key, Value value) {
    if (full()) entries_.pop_back();
    entries_.emplace_front(std::move(key), std::move(value));
    return entries_.front().second;
  }

  [[nodiscard]] bool full() const { return entries_.size() >= most_; }
  void Clear() { entries_.clear(); }

 private:
  const size_t most_;
  std::list<std::pair<Key, Value>> entries_;  // latest use first
};

}  // namespace oocdnn
