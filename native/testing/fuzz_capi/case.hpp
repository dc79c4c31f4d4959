// One random call of the C interface: a convolution and its tensors, in memory of exactly their
// bytes, so that the address sanitizer sees an access past an end.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "capi/oocdnn.h"
#include "testing/clients/random.hpp"

namespace oocdnn::fuzz_capi {

using clients::Random;

// In the order of oocdnn_operands.
enum Operand : size_t {
  kX,
  kW,
  kY,
  kBias,
  kScale,
  kResidual,
  kZ,
  kSaved,
  kInput,
  kDw,
  kDb,
  kPrologue,
  kSums,
  kOperands
};

constexpr int64_t kMostBytes = 1 << 18;  // of a tensor with memory; others have none

struct FreeBlock {
  void operator()(unsigned char* block) const { std::free(block); }
};

// Memory of one tensor.
class Block {
 public:
  // `bytes` random small numbers, `shift` bytes behind an aligned address.
  void Allocate(Random* random, int32_t dtype, size_t bytes, size_t shift);
  void Remember() { before_.assign(data(), data() + bytes_); }
  [[nodiscard]] bool IsAsBefore() const {
    return before_.size() != bytes_ || bytes_ == 0 ||
           std::memcmp(before_.data(), data(), bytes_) == 0;
  }
  [[nodiscard]] const std::vector<unsigned char>& before() const { return before_; }
  [[nodiscard]] unsigned char* data() const { return memory_.get() + shift_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<unsigned char, FreeBlock> memory_;
  std::vector<unsigned char> before_;
  size_t bytes_ = 0, shift_ = 0;
};

struct Case {
  oocdnn_convolution call{};
  oocdnn_operands operands{};
  std::array<oocdnn_tensor, kOperands> tensors{};
  std::array<Block, kOperands> blocks;
  std::array<int, kOperands> files{};  // descriptors to close, or -1
  std::array<bool, kOperands> used{}, written{};
  bool right = true;    // nothing in it is against the rules
  bool shares = false;  // two tensors may share memory
  bool exact = false;   // Expected() says what the result is

  Case() { files.fill(-1); }
  ~Case();
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  // The members of operands point at the tensors that are used.
  void Connect();
  [[nodiscard]] bool InMemory(size_t i) const { return used[i] && tensors[i].fd < 0; }
};

// Sizes of a convolution with at least one output.
struct Sizes {
  int rank = 2;
  int64_t n = 1, c = 1, k = 1, groups = 1;  // c and k in all
  std::array<int64_t, 3> in{1, 1, 1}, filter{1, 1, 1}, out{1, 1, 1}, pooled{1, 1, 1};
};

// A call without mistakes, then, where `hostile`, with some.
void DrawCase(Random* random, bool hostile, Case* into);

// The sizes, window and pool of one convolution. `from` (may be null) is the one before it in a
// chain, whose result it reads.
Sizes DrawSizes(Random* random, const Sizes* from, oocdnn_convolution* call, int direction);
std::vector<int64_t> ShapeOf(Operand operand, const Sizes& sizes, const oocdnn_convolution& call);
// Dense or with gaps, the axes in any order.
void SetTensor(Random* random, int32_t dtype, const std::vector<int64_t>& shape, bool dense,
               oocdnn_tensor* tensor);
void BreakCall(Random* random, oocdnn_convolution* call);
void BreakTensor(Random* random, oocdnn_tensor* tensor);
// Memory for a tensor as it is now, or in `file` a file; none where it would be too much.
void Place(Random* random, bool hostile, Operand operand, Case* into);
int32_t DrawDtype(Random* random);

// True if the written tensor of an exact case, and the bytes between its elements, are right.
bool IsAsExpected(const Case& made);

}  // namespace oocdnn::fuzz_capi
