// The inner loops of the direct engine: a small tile of sums held in registers.
//
// Every sum is one chain of multiplications and additions in the order of its steps, rounded after
// each (never fused), so that its bits depend on the order of the steps alone: not on the tile it
// is in, the vector length, or the processor. The build must keep the compiler from fusing
// (-ffp-contract=off).
#pragma once

#include <array>
#include <cstdint>

namespace oocdnn::cpu {

// The steps of a chain: `rows` rows of `cols` steps each. Step (r, i) multiplies
// a[row[r].a + i * a_col + m] with b[row[r].b + i * b_col + lane].
struct ChainRow {
  int64_t a = 0, b = 0;
};

template <class T>
struct Chain {
  const T* a = nullptr;
  const T* b = nullptr;
  const ChainRow* row = nullptr;
  int64_t rows = 0, cols = 0, a_col = 0, b_col = 0;
};

// What becomes of the chain's sum: it replaces c, it is added to c, or the chain starts from c.
enum class Into : uint8_t { kStore, kAdd, kContinue };

template <class T>
struct MicroKernels {
  // The chains of c[m * c_row + lane].
  using Block = void (*)(const Chain<T>& chain, T* c, int64_t c_row, Into into);
  // The same with c in double. It does not continue chains.
  using WideBlock = void (*)(const Chain<T>& chain, double* c, int64_t c_row, Into into);
  static constexpr int kRowSizes = 4;  // 1, 2, 4, 8 rows of c
  static constexpr int kVectors = 3;   // 1, 2, 3 vectors of lanes

  int lanes = 0;        // of one vector
  int max_vectors = 0;  // what the processor's registers hold beside max_row_size
  int max_row_size = 0;
  std::array<std::array<Block, kVectors>, kRowSizes> block{};
  std::array<std::array<WideBlock, kVectors>, kRowSizes> wide_block{};
  // The same for lane-wise products: a has lanes too, and c one row.
  std::array<Block, kVectors> pairs{};
  std::array<WideBlock, kVectors> wide_pairs{};
};

// The kernels for this processor; T is float or double.
template <class T>
const MicroKernels<T>& Kernels();

// Lanes of a column of work: a whole number of the kernels' widest blocks on every processor.
template <class T>
constexpr int64_t kColumnLanes = 192 / static_cast<int64_t>(sizeof(T));

// Runs a chain for `rows` rows of c and `lanes` lanes (rounded up to whole vectors: b and c have
// room for them). C is T or double.
template <class T, class C>
void RunChain(const Chain<T>& chain, C* c, int64_t c_row, int64_t rows, int64_t lanes, Into into);
template <class T, class C>
void RunPairs(const Chain<T>& chain, C* c, int64_t lanes, Into into);

}  // namespace oocdnn::cpu
