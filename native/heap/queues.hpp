// Queues: what has begun under each number and not ended, the oldest first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace oocdnn::heap {

template <class T>
class Queues {
 public:
  // For numbers from 0 on.
  explicit Queues(size_t numbers) : ends_(numbers) {}

  void Push(int64_t number, T value) {
    Ends& ends = ends_[static_cast<size_t>(number)];
    const auto made = static_cast<int32_t>(nodes_.size());
    nodes_.push_back({value, kNone});
    (ends.first == kNone ? ends.first : nodes_[static_cast<size_t>(ends.last)].next) = made;
    ends.last = made;
  }

  // The oldest one, which ends; none where none has begun.
  std::optional<T> Pop(int64_t number) {
    Ends& ends = ends_[static_cast<size_t>(number)];
    if (ends.first == kNone) return {};
    const Node& node = nodes_[static_cast<size_t>(ends.first)];
    ends.first = node.next;
    return node.value;
  }

 private:
  static constexpr int32_t kNone = -1;

  struct Node {
    T value;
    int32_t next;
  };
  struct Ends {
    int32_t first = kNone;
    int32_t last = kNone;
  };

  std::vector<Node> nodes_;
  std::vector<Ends> ends_;
};

}  // namespace oocdnn::heap
