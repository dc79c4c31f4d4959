// Element types of tensors, and their conversions on the host.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace oocdnn {

// The values are those of the C API, but for kByte: what is saved for backward, which no arithmetic
// and no conversion touches.
enum class DType : int { kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBFloat16 = 3, kByte = 4 };

constexpr int kDTypes = 4;  // that a problem may have

constexpr int64_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 8;
    case DType::kFloat32: return 4;
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kByte: return 1;
  }
  return 0;
}

constexpr bool IsValid(DType dtype) {
  return static_cast<int>(dtype) >= 0 && static_cast<int>(dtype) < kDTypes;
}

// The short names of problem strings: f32, f64, f16, bf16.
constexpr const char* Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "f32";
    case DType::kFloat64: return "f64";
    case DType::kFloat16: return "f16";
    case DType::kBFloat16: return "bf16";
    case DType::kByte: return "bytes";
  }
  return "?";
}

// The type in which sums over `dtype` are kept between tiles: f64 for f64, else f32.
constexpr DType AccumulatorOf(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

// 16-bit types as storage; arithmetic happens in float.
struct BFloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

inline float ToFloat(BFloat16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Round to nearest, ties to even; a NaN stays a (quiet) NaN.
inline BFloat16 ToBFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

inline float ToFloat(Float16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t rest = value.bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  if (rest >= 0x0400u) return std::bit_cast<float>(sign | ((rest << 13) + (112u << 23)));
  const float tiny = static_cast<float>(rest) * 0x1p-24f;  // subnormal: exact in float
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(tiny));
}

// Round to nearest, ties to even; overflow becomes infinity.
inline Float16 ToFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (rest >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (rest < 0x38800000u) {  // subnormal half: let the float adder round at 2^-24
    const float shifted = std::bit_cast<float>(rest) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) & 0x7fffu))};
  }
  const uint32_t rounded = rest + 0xfffu + ((rest >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13))};
}

}  // namespace oocdnn
