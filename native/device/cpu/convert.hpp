// Conversion of one element between any two dtypes, with one rounding to nearest even.
#pragma once

#include <bit>
#include <type_traits>

#include "base/dtype.hpp"

namespace oocdnn::cpu {

template <class T>
constexpr bool kIsNarrow = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;

// A double as the float that rounds to any 16-bit type as the double itself would: what float
// cannot hold is cut off and leaves a trace in the last bit (rounding to odd).
inline float ToOddFloat(double value) {
  const auto near = static_cast<float>(value);
  const double back = near;
  if (back == value || value != value) return near;
  auto bits = std::bit_cast<uint32_t>(near);
  const bool away = value > 0 ? back > value : back < value;
  if (away) --bits;
  return std::bit_cast<float>(bits | 1u);
}

inline double Widen(double value) { return value; }
inline float Widen(float value) { return value; }
inline float Widen(Float16 value) { return ToFloat(value); }
inline float Widen(BFloat16 value) { return ToFloat(value); }

template <class To, class From>
inline To Convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsNarrow<To>) {
    float wide = 0;
    if constexpr (std::is_same_v<From, double>) {
      wide = ToOddFloat(value);
    } else {
      wide = Widen(value);
    }
    if constexpr (std::is_same_v<To, Float16>)
      return ToFloat16(wide);
    else
      return ToBFloat16(wide);
  } else {
    return static_cast<To>(Widen(value));
  }
}

// Calls fn with a value of the C++ type that `dtype` means; bytes have no numbers.
template <class Fn>
auto WithType(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kFloat64: return fn(double{});
    case DType::kFloat16: return fn(Float16{});
    case DType::kBFloat16: return fn(BFloat16{});
    case DType::kFloat32:
    case DType::kByte: break;
  }
  return fn(float{});
}

}  // namespace oocdnn::cpu
