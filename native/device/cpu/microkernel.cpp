// One body, compiled for each instruction set by wrappers with a target attribute, and chosen at
// run time. The vectors are the compiler's own vector types.
#include "device/cpu/microkernel.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/checked.hpp"

namespace oocdnn::cpu {
namespace {

template <class T, int Bytes>
struct VectorOf {
  // GCC drops these attributes from an alias of a dependent type, so this is a typedef.
  // NOLINTNEXTLINE(modernize-use-using)
  typedef T type __attribute__((vector_size(Bytes), aligned(sizeof(T)), may_alias));
};

// Puts the sums of one vector of lanes into c.
template <class T, int Bytes, class C>
[[gnu::always_inline]] inline void PutVector(const typename VectorOf<T, Bytes>::type& sum, C* c,
                                             Into into) {
  if constexpr (std::is_same_v<T, C>) {
    auto* const at = reinterpret_cast<VectorOf<T, Bytes>::type*>(c);
    *at = into == Into::kAdd ? *at + sum : sum;
  } else {
    using Half = VectorOf<T, Bytes / 2>::type;
    using Wide = VectorOf<C, Bytes>::type;
    Half half[2];
    std::memcpy(half, &sum, sizeof sum);
    auto* const at = reinterpret_cast<Wide*>(c);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const Wide wide = __builtin_convertvector(half[i], Wide);
      at[i] = into == Into::kAdd ? at[i] + wide : wide;
    }
  }
}

// Sums start from c where they continue it, else from zero.
template <class T, int Bytes, class C>
[[gnu::always_inline]] inline void StartVector(const C* c, Into into,
                                               typename VectorOf<T, Bytes>::type* sum) {
  using Vector = VectorOf<T, Bytes>::type;
  *sum = Vector{};
  if constexpr (std::is_same_v<T, C>) {
    if (into == Into::kContinue) *sum = *reinterpret_cast<const Vector*>(c);
  }
}

template <class T, class C, int Bytes, int Rows, int Vectors>
[[gnu::always_inline]] inline void BlockBody(const Chain<T>& chain, C* c, int64_t c_row,
                                             Into into) {
  using Vector = VectorOf<T, Bytes>::type;
  constexpr int kLanes = Bytes / static_cast<int>(sizeof(T));
  Vector sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int m = 0; m < Rows; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      StartVector<T, Bytes>(c + m * c_row + v * kLanes, into, &sum[m][v]);
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
      PutVector<T, Bytes>(sum[m][v], c + m * c_row + v * kLanes, into);
    }
  }
}

template <class T, class C, int Bytes, int Vectors>
[[gnu::always_inline]] inline void PairsBody(const Chain<T>& chain, C* c, Into into) {
  using Vector = VectorOf<T, Bytes>::type;
  constexpr int kLanes = Bytes / static_cast<int>(sizeof(T));
  Vector sum[Vectors];
#pragma GCC unroll 8
  for (int v = 0; v < Vectors; ++v) StartVector<T, Bytes>(c + v * kLanes, into, &sum[v]);
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
  for (int v = 0; v < Vectors; ++v) PutVector<T, Bytes>(sum[v], c + v * kLanes, into);
}

// A struct for each instruction set: the length of its vectors and the wrappers that carry its
// target attribute, into which the bodies are inlined.
#define OOC_INSTRUCTION_SET(Name, Attribute, Length)                                     \
  struct Name {                                                                          \
    static constexpr int kBytes = Length;                                                \
    template <class T, class C, int Rows, int Vectors>                                   \
    Attribute static void Block(const Chain<T>& chain, C* c, int64_t c_row, Into into) { \
      BlockBody<T, C, Length, Rows, Vectors>(chain, c, c_row, into);                     \
    }                                                                                    \
    template <class T, class C, int Vectors>                                             \
    Attribute static void Pairs(const Chain<T>& chain, C* c, int64_t, Into into) {       \
      PairsBody<T, C, Length, Vectors>(chain, c, into);                                  \
    }                                                                                    \
  }

OOC_INSTRUCTION_SET(Baseline, , 16);
#if defined(__x86_64__)
OOC_INSTRUCTION_SET(Avx2, __attribute__((target("avx2"))), 32);
OOC_INSTRUCTION_SET(Avx512, __attribute__((target("avx512f"))), 64);
#endif

template <class Set, class T, class C, int Rows>
constexpr std::array<void (*)(const Chain<T>&, C*, int64_t, Into), 3> BlocksOf() {
  return {Set::template Block<T, C, Rows, 1>, Set::template Block<T, C, Rows, 2>,
          Set::template Block<T, C, Rows, 3>};
}

template <class Set, class T>
MicroKernels<T> KernelsOf(int max_row_size, int max_vectors) {
  MicroKernels<T> kernels;
  kernels.lanes = Set::kBytes / static_cast<int>(sizeof(T));
  kernels.max_vectors = max_vectors;
  kernels.max_row_size = max_row_size;
  kernels.block = {BlocksOf<Set, T, T, 1>(), BlocksOf<Set, T, T, 2>(), BlocksOf<Set, T, T, 4>(),
                   BlocksOf<Set, T, T, 8>()};
  kernels.wide_block = {BlocksOf<Set, T, double, 1>(), BlocksOf<Set, T, double, 2>(),
                        BlocksOf<Set, T, double, 4>(), BlocksOf<Set, T, double, 8>()};
  kernels.pairs = {Set::template Pairs<T, T, 1>, Set::template Pairs<T, T, 2>,
                   Set::template Pairs<T, T, 3>};
  kernels.wide_pairs = {Set::template Pairs<T, double, 1>, Set::template Pairs<T, double, 2>,
                        Set::template Pairs<T, double, 3>};
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

template <class T, class C>
void RunChain(const Chain<T>& chain, C* c, int64_t c_row, int64_t rows, int64_t lanes, Into into) {
  const MicroKernels<T>& kernels = Kernels<T>();
  const auto run = [&](const auto& block) {
    int64_t size = kernels.max_row_size;
    for (int64_t m = 0; m < rows; m += size) {
      while (size > rows - m) size /= 2;
      const auto& sized = block[static_cast<size_t>(__builtin_ctzll(size))];
      ForVectors(kernels, lanes, [&](int64_t lane, int64_t vectors) {
        Chain<T> part = chain;
        part.a += m;
        part.b += lane;
        sized[static_cast<size_t>(vectors - 1)](part, c + m * c_row + lane, c_row, into);
      });
    }
  };
  if constexpr (std::is_same_v<T, C>) {
    run(kernels.block);
  } else {
    run(kernels.wide_block);
  }
}

template <class T, class C>
void RunPairs(const Chain<T>& chain, C* c, int64_t lanes, Into into) {
  const MicroKernels<T>& kernels = Kernels<T>();
  const auto run = [&](const auto& pairs) {
    ForVectors(kernels, lanes, [&](int64_t lane, int64_t vectors) {
      Chain<T> part = chain;
      part.a += lane;
      part.b += lane;
      pairs[static_cast<size_t>(vectors - 1)](part, c + lane, 0, into);
    });
  };
  if constexpr (std::is_same_v<T, C>) {
    run(kernels.pairs);
  } else {
    run(kernels.wide_pairs);
  }
}

template const MicroKernels<float>& Kernels();
template const MicroKernels<double>& Kernels();
template void RunChain(const Chain<float>&, float*, int64_t, int64_t, int64_t, Into);
template void RunChain(const Chain<float>&, double*, int64_t, int64_t, int64_t, Into);
template void RunChain(const Chain<double>&, double*, int64_t, int64_t, int64_t, Into);
template void RunPairs(const Chain<float>&, float*, int64_t, Into);
template void RunPairs(const Chain<float>&, double*, int64_t, Into);
template void RunPairs(const Chain<double>&, double*, int64_t, Into);

}  // namespace oocdnn::cpu
