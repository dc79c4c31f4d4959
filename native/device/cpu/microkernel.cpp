// One body, compiled for each instruction set by wrappers with a target attribute, and chosen at
// run time. The vectors are the compiler's own vector types.
#include "device/cpu/microkernel.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace oocdnn::cpu {
namespace {

template <class T, int Bytes>
struct VectorOf {
  // GCC drops these attributes from an alias of a dependent type, so this is a typedef.
  // NOLINTNEXTLINE(modernize-use-using)
  typedef T type __attribute__((vector_size(Bytes), aligned(sizeof(T)), may_alias));
};

template <class T, int Bytes, int Rows, int Vectors>
[[gnu::always_inline]] inline void BlockBody(const Chain<T>& chain, T* c, int64_t c_row,
                                             bool load) {
  using Vector = VectorOf<T, Bytes>::type;
  constexpr int kLanes = Bytes / static_cast<int>(sizeof(T));
  Vector sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      if (load) {
        sum[m][v] = *reinterpret_cast<const Vector*>(c + m * c_row + v * kLanes);
      } else {
        sum[m][v] = Vector{};
      }
    }
  }
  for (int64_t r = 0; r < chain.rows; ++r) {
    const T* a = chain.a + chain.row[r].a;
    const T* b = chain.b + chain.row[r].b;
    for (int64_t i = 0; i < chain.cols; ++i, a += chain.a_col, b += chain.b_col) {
      Vector lane[Vectors];
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        lane[v] = *reinterpret_cast<const Vector*>(b + v * kLanes);
      }
#pragma GCC unroll 8
      for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 8
        for (int v = 0; v < Vectors; ++v) sum[m][v] += a[m] * lane[v];
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      *reinterpret_cast<Vector*>(c + m * c_row + v * kLanes) = sum[m][v];
    }
  }
}

template <class T, int Bytes, int Vectors>
[[gnu::always_inline]] inline void PairsBody(const Chain<T>& chain, T* c, bool load) {
  using Vector = VectorOf<T, Bytes>::type;
  constexpr int kLanes = Bytes / static_cast<int>(sizeof(T));
  Vector sum[Vectors];
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) {
    sum[v] = load ? *reinterpret_cast<const Vector*>(c + v * kLanes) : Vector{};
  }
  for (int64_t r = 0; r < chain.rows; ++r) {
    const T* a = chain.a + chain.row[r].a;
    const T* b = chain.b + chain.row[r].b;
    for (int64_t i = 0; i < chain.cols; ++i, a += chain.a_col, b += chain.b_col) {
#pragma GCC unroll 8
      for (int v = 0; v < Vectors; ++v) {
        sum[v] += *reinterpret_cast<const Vector*>(a + v * kLanes) *
                  *reinterpret_cast<const Vector*>(b + v * kLanes);
      }
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) *reinterpret_cast<Vector*>(c + v * kLanes) = sum[v];
}

// A struct for each instruction set: the length of its vectors and the wrappers that carry its
// target attribute, into which the bodies are inlined.
#define OOC_INSTRUCTION_SET(Name, Attribute, Length)                                     \
  struct Name {                                                                          \
    static constexpr int kBytes = Length;                                                \
    template <class T, int Rows, int Vectors>                                            \
    Attribute static void Block(const Chain<T>& chain, T* c, int64_t c_row, bool load) { \
      BlockBody<T, Length, Rows, Vectors>(chain, c, c_row, load);                        \
    }                                                                                    \
    template <class T, int Vectors>                                                      \
    Attribute static void Pairs(const Chain<T>& chain, T* c, int64_t, bool load) {       \
      PairsBody<T, Length, Vectors>(chain, c, load);                                     \
    }                                                                                    \
  }

OOC_INSTRUCTION_SET(Baseline, , 16);
#if defined(__x86_64__)
OOC_INSTRUCTION_SET(Avx2, __attribute__((target("avx2"))), 32);
OOC_INSTRUCTION_SET(Avx512, __attribute__((target("avx512f"))), 64);
#endif

template <class Set, class T, int Rows>
constexpr std::array<typename MicroKernels<T>::Block, 3> BlocksOf() {
  return {Set::template Block<T, Rows, 1>, Set::template Block<T, Rows, 2>,
          Set::template Block<T, Rows, 3>};
}

template <class Set, class T>
MicroKernels<T> KernelsOf(int max_row_size, int max_vectors) {
  MicroKernels<T> kernels;
  kernels.lanes = Set::kBytes / static_cast<int>(sizeof(T));
  kernels.max_vectors = max_vectors;
  kernels.max_row_size = max_row_size;
  kernels.block = {BlocksOf<Set, T, 1>(), BlocksOf<Set, T, 2>(), BlocksOf<Set, T, 4>(),
                   BlocksOf<Set, T, 8>()};
  kernels.pairs = {Set::template Pairs<T, 1>, Set::template Pairs<T, 2>, Set::template Pairs<T, 3>};
  return kernels;
}

template <class T>
MicroKernels<T> Choose() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return KernelsOf<Avx512, T>(8, 3);
  if (__builtin_cpu_supports("avx2")) return KernelsOf<Avx2, T>(4, 2);
#endif
  return KernelsOf<Baseline, T>(4, 2);
}

// Calls fn(first lane, number of vectors) for groups of vectors that cover `lanes`.
template <class T, class Fn>
void ForVectors(const MicroKernels<T>& kernels, int64_t lanes, const Fn& fn) {
  const int64_t vectors = CeilDiv(lanes, kernels.lanes);
  for (int64_t v = 0; v < vectors; v += kernels.max_vectors) {
    fn(v * kernels.lanes, std::min<int64_t>(vectors - v, kernels.max_vectors));
  }
}

}  // namespace

template <class T>
const MicroKernels<T>& Kernels() {
  static const MicroKernels<T> kernels = Choose<T>();
  return kernels;
}

template <class T>
void RunChain(const Chain<T>& chain, T* c, int64_t c_row, int64_t rows, int64_t lanes, bool load) {
  const MicroKernels<T>& kernels = Kernels<T>();
  int64_t size = kernels.max_row_size;
  for (int64_t m = 0; m < rows; m += size) {
    while (size > rows - m) size /= 2;
    const auto& block = kernels.block[static_cast<size_t>(__builtin_ctzll(size))];
    ForVectors(kernels, lanes, [&](int64_t lane, int64_t vectors) {
      Chain<T> part = chain;
      part.a += m;
      part.b += lane;
      block[static_cast<size_t>(vectors - 1)](part, c + m * c_row + lane, c_row, load);
    });
  }
}

template <class T>
void RunPairs(const Chain<T>& chain, T* c, int64_t lanes, bool load) {
  const MicroKernels<T>& kernels = Kernels<T>();
  ForVectors(kernels, lanes, [&](int64_t lane, int64_t vectors) {
    Chain<T> part = chain;
    part.a += lane;
    part.b += lane;
    kernels.pairs[static_cast<size_t>(vectors - 1)](part, c + lane, 0, load);
  });
}

template const MicroKernels<float>& Kernels();
template const MicroKernels<double>& Kernels();
template void RunChain(const Chain<float>&, float*, int64_t, int64_t, int64_t, bool);
template void RunChain(const Chain<double>&, double*, int64_t, int64_t, int64_t, bool);
template void RunPairs(const Chain<float>&, float*, int64_t, bool);
template void RunPairs(const Chain<double>&, double*, int64_t, bool);

}  // namespace oocdnn::cpu
