// The inner loops of the direct engine: a small block of sums held in registers.
//
// Every sum is one chain of multiplications and additions in the order of its steps, rounded after
// each (never fused), so that its bits depend on the order of the steps alone: not on the block it
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

template <class T>
struct MicroKernels {
  // c[m * c_row + lane] (+)= the chain; `load` continues the chains from what c holds.
  using Block = void (*)(const Chain<T>& chain, T* c, int64_t c_row, bool load);
  static constexpr int kRowSizes = 4;  // 1, 2, 4, 8 rows of c
  static constexpr int kVectors = 3;   // 1, 2, 3 vectors of lanes

  int lanes = 0;        // of one vector
  int max_vectors = 0;  // what the processor's registers hold beside max_row_size
  int max_row_size = 0;
  std::array<std::array<Block, kVectors>, kRowSizes> block{};
  // The same for lane-wise products: a has lanes too, and c one row.
  std::array<Block, kVectors> pairs{};
};

// The kernels for this processor; T is float or double.
template <class T>
const MicroKernels<T>& Kernels();

// Lanes of a column of work: a whole number of the kernels' widest blocks on every processor.
template <class T>
constexpr int64_t kColumnLanes = 192 / static_cast<int64_t>(sizeof(T));

// Runs a chain for `rows` rows of c and `lanes` lanes (rounded up to whole vectors: b and c have
// room for them).
template <class T>
void RunChain(const Chain<T>& chain, T* c, int64_t c_row, int64_t rows, int64_t lanes, bool load);
template <class T>
void RunPairs(const Chain<T>& chain, T* c, int64_t lanes, bool load);

}  // namespace oocdnn::cpu
