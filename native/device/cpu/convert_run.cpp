// The instructions round as Convert does; only the payload of a NaN may differ.
#include "device/cpu/convert_run.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace oocdnn::cpu {
namespace {

#if defined(__x86_64__)
constexpr int64_t kLanes = 8;

__attribute__((target("avx,f16c"))) int64_t ConvertVectors(const Float16* from, float* to,
                                                           int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
  return i;
}

__attribute__((target("avx,f16c"))) int64_t ConvertVectors(const float* from, Float16* to,
                                                           int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  return i;
}

bool HasHalves() {
  static const bool has = __builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c");
  return has;
}
#endif

template <class From, class To>
void ConvertAll(const From* from, To* to, int64_t count) {
  int64_t done = 0;
#if defined(__x86_64__)
  if (HasHalves()) done = ConvertVectors(from, to, count);
#endif
  for (int64_t i = done; i < count; ++i) to[i] = Convert<To>(from[i]);
}

}  // namespace

void ConvertHalves(const Float16* from, float* to, int64_t count) { ConvertAll(from, to, count); }
void ConvertHalves(const float* from, Float16* to, int64_t count) { ConvertAll(from, to, count); }

}  // namespace oocdnn::cpu
