// Elements as they are stored, and their conversions with one rounding to nearest even.
#pragma once

#include "device/cuda/platform.cuh"

namespace oocdnn::cuda {

struct Half {
  unsigned short bits;
};
struct BFloat {
  unsigned short bits;
};

// What no arithmetic and no conversion touches.
struct Byte {
  unsigned char bits;
};

template <class T, int kCount>
struct Vector {
  T at[kCount];
};

// kBytes bytes as one access moves them: kept in whole registers until an element is needed.
template <int kBytes>
struct alignas(kBytes) Raw {
  unsigned word[kBytes / 4];
};
template <>
struct alignas(2) Raw<2> {
  unsigned short half;
};
template <>
struct Raw<1> {
  unsigned char byte;
};

template <class To, class From>
OOC_HOST_DEVICE To BitCast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

template <int kBytes>
OOC_HOST_DEVICE Raw<kBytes> LoadRaw(const char* from) {
  return *reinterpret_cast<const Raw<kBytes>*>(from);
}
template <int kBytes>
OOC_HOST_DEVICE void StoreRaw(const Raw<kBytes>& raw, char* to) {
  *reinterpret_cast<Raw<kBytes>*>(to) = raw;
}

// To where nothing is aligned. A Half in a register of 16 bits, of which bytes are stored,
// ptxas 13.0 takes for a number that is to be converted to a byte; in one of 32 bits it does not.
template <class T>
OOC_HOST_DEVICE void StoreBytes(const T& v, unsigned char* to) {
  memcpy(to, &v, sizeof v);
}
OOC_HOST_DEVICE void StoreBytes(const Half& v, unsigned char* to) {
#ifdef __CUDA_ARCH__
  unsigned twice;
  asm("mov.b32 %0, {%1, %1};" : "=r"(twice) : "h"(v.bits));
  to[0] = static_cast<unsigned char>(twice);
  to[1] = static_cast<unsigned char>(twice >> 8);
#else
  memcpy(to, &v, sizeof v);
#endif
}

OOC_HOST_DEVICE float Widen(BFloat v) {
  return BitCast<float>(static_cast<unsigned>(v.bits) << 16);
}

OOC_HOST_DEVICE float Widen(Half v) {
#ifdef __CUDA_ARCH__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(v.bits));
  return wide;
#else
  const unsigned sign = (v.bits & 0x8000u) << 16, rest = v.bits & 0x7fffu;
  if (rest >= 0x7c00u) return BitCast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  if (rest >= 0x0400u) return BitCast<float>(sign | ((rest << 13) + (112u << 23)));
  const float tiny = static_cast<float>(rest) * 0x1p-24f;
  return BitCast<float>(sign | BitCast<unsigned>(tiny));
#endif
}

OOC_HOST_DEVICE float Widen(float v) { return v; }
OOC_HOST_DEVICE double Widen(double v) { return v; }

OOC_HOST_DEVICE void Narrow(float v, BFloat* to) {
  const unsigned bits = BitCast<unsigned>(v);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to->bits = static_cast<unsigned short>(nan ? (bits >> 16) | 0x40u : rounded);
}

OOC_HOST_DEVICE void Narrow(float v, Half* to) {
#ifdef __CUDA_ARCH__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(v));
#else
  const unsigned bits = BitCast<unsigned>(v), sign = (bits >> 16) & 0x8000u;
  const unsigned rest = bits & 0x7fffffffu;
  unsigned half;
  if (rest > 0x7f800000u) {
    half = 0x7e00u;
  } else if (rest >= 0x477ff000u) {
    half = 0x7c00u;
  } else if (rest < 0x38800000u) {  // subnormal half: the adder rounds at 2^-24
    half = BitCast<unsigned>(BitCast<float>(rest) + 0.5f) & 0x7fffu;
  } else {
    half = (rest + 0xfffu + ((rest >> 13) & 1u) - (112u << 23)) >> 13;
  }
  to->bits = static_cast<unsigned short>(sign | half);
#endif
}

// A double as the float that rounds to any 16-bit type as the double itself would: what float
// cannot hold is cut off and leaves a trace in the last bit (rounding to odd).
OOC_HOST_DEVICE float ToOddFloat(double v) {
  const float near = static_cast<float>(v);
  const double back = near;
  if (back == v || v != v) return near;
  unsigned bits = BitCast<unsigned>(near);
  if (v > 0 ? back > v : back < v) --bits;
  return BitCast<float>(bits | 1u);
}

template <class To, class From>
struct Conversion {
  OOC_HOST_DEVICE To Of(From v) { return static_cast<To>(Widen(v)); }
};
template <class T>
struct Conversion<T, T> {
  OOC_HOST_DEVICE T Of(T v) { return v; }
};
template <class To, class From>
struct NarrowConversion {
  OOC_HOST_DEVICE To Of(From v) {
    To to;
    Narrow(Widen(v), &to);
    return to;
  }
};
template <class To>
struct NarrowConversion<To, double> {
  OOC_HOST_DEVICE To Of(double v) {
    To to;
    Narrow(ToOddFloat(v), &to);
    return to;
  }
};
template <>
struct Conversion<Half, float> : NarrowConversion<Half, float> {};
template <>
struct Conversion<Half, double> : NarrowConversion<Half, double> {};
template <>
struct Conversion<Half, BFloat> : NarrowConversion<Half, BFloat> {};
template <>
struct Conversion<BFloat, float> : NarrowConversion<BFloat, float> {};
template <>
struct Conversion<BFloat, double> : NarrowConversion<BFloat, double> {};
template <>
struct Conversion<BFloat, Half> : NarrowConversion<BFloat, Half> {};

template <class To, class From>
OOC_HOST_DEVICE To Convert(From v) {
  return Conversion<To, From>::Of(v);
}

// The type in which elements of another one are computed with.
template <class Stored>
struct ComputeType {
  using Type = float;
};
template <>
struct ComputeType<double> {
  using Type = double;
};

}  // namespace oocdnn::cuda
